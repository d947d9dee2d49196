package lua

// proto is a compiled function: immutable, shared by closures and by concurrent runs.
type proto struct {
	code      []instr
	constants []value
	protos    []*proto
	// lines has the line of each instruction.
	lines []int32
	// locals names variables in error messages.
	locals   []localName
	captured []capture
	names    *names
	// source is "@name" or, for loadstring, the text.
	source string
	params int
	// registers is the number of registers, the parameters included.
	registers int
	vararg    varargKind
	line      int // where it is defined; 0 for a chunk
}

// localName is the name of a local variable while the program counter is in [from, to). The register is the number of
// earlier entries whose range includes the program counter.
type localName struct {
	name     string
	from, to int
}

// capture is a captured variable of a function: its name, and its place in the enclosing function. A source may have
// many more captured variables than bytes, so a capture is small and not an instruction.
type capture struct {
	name    int32 // an index into names
	index   uint8 // a register of the enclosing function, or an index into that function's captured variables
	fromReg bool  // index is a register
}

// names has the names of the variables of a chunk.
type names struct{ list []string }

// varargKind is the treatment of surplus arguments by a function.
type varargKind uint8

const (
	// fixedArgs drops surplus arguments.
	fixedArgs varargKind = iota
	// varArgs makes "..." of surplus arguments.
	varArgs
	// tableArgs makes a table of surplus arguments, which is the local variable arg, as in Lua 5.0. It is the kind of a
	// function that declares "..." and does not use it.
	tableArgs
)

// instr is an instruction: an operation, a register A, and two operands of 16 bits, B and C, or one of 32 bits, Bx. An
// RK operand is a constant if its top bit is set, and otherwise a register.
type instr uint64

const (
	constantBit = 1 << 15
	maxRKIndex  = constantBit - 1
	maxB        = 1<<16 - 1
	// noRegister is the operand A that stands for no register.
	noRegister = 255
	// maxRegisters limits the registers of a function.
	maxRegisters = 250
)

func encode(op opcode, a, b, c int) instr {
	return instr(op) | instr(a)<<8 | instr(b)<<16 | instr(c)<<32
}

func encodeX(op opcode, a, bx int) instr {
	return instr(op) | instr(a)<<8 | instr(uint32(int32(bx)))<<16
}

func (i instr) op() opcode { return opcode(i & 0xFF) }
func (i instr) a() int     { return int(i >> 8 & 0xFF) }
func (i instr) b() int     { return int(i >> 16 & 0xFFFF) }
func (i instr) c() int     { return int(i >> 32 & 0xFFFF) }

// bx is the signed operand of 32 bits: an index, or the distance of a jump.
func (i instr) bx() int { return int(int32(i >> 16)) }

func (i instr) withOp(op opcode) instr { return i&^0xFF | instr(op) }
func (i instr) withA(a int) instr      { return i&^(0xFF<<8) | instr(a)<<8 }
func (i instr) withB(b int) instr      { return i&^(0xFFFF<<16) | instr(b)<<16 }
func (i instr) withC(c int) instr      { return i&^(0xFFFF<<32) | instr(c)<<32 }
func (i instr) withBx(bx int) instr    { return i&^(0xFFFFFFFF<<16) | instr(uint32(int32(bx)))<<16 }

// opcode is an operation of the virtual machine.
type opcode uint8

// The operations of Lua 5.1, and opGlobal, opGetField and opLibrary, which are faster forms for frequent cases. R is a
// register, K a constant, RK either of them, and U a captured variable. pc is the index of the next instruction.
const (
	opMove      opcode = iota // R(A) := R(B)
	opLoadK                   // R(A) := K(Bx)
	opLoadBool                // R(A) := B ~= 0; if C ~= 0 then pc++
	opLoadNil                 // R(A)…R(B) := nil
	opGetUpval                // R(A) := U(B)
	opGlobal                  // R(A) := K(C), the global that is named K(B) and never changes
	opGetGlobal               // R(A) := global K(Bx), looked up: KEYS, ARGV, _G, or an error
	opGetTable                // R(A) := R(B)[RK(C)]
	opGetField                // R(A) := R(B)[K(C)], a string
	opLibrary                 // R(A) := K(B), the field K(C) of a library
	opSetGlobal               // global K(Bx) := R(A): an error
	opSetUpval                // U(B) := R(A)
	opSetTable                // R(A)[RK(B)] := RK(C)
	opNewTable                // R(A) := {} with room for B elements and C fields
	opSelf                    // R(A+1) := R(B); R(A) := R(B)[RK(C)]
	opAdd                     // R(A) := RK(B) + RK(C)
	opSub
	opMul
	opDiv
	opMod
	opPow
	opUnm     // R(A) := -R(B)
	opNot     // R(A) := not R(B)
	opLen     // R(A) := #R(B)
	opConcat  // R(A) := R(B) .. … .. R(C)
	opJmp     // pc += Bx
	opEq      // if (RK(B) == RK(C)) ~= (A ~= 0) then pc++
	opLt      // if (RK(B) < RK(C)) ~= (A ~= 0) then pc++
	opLe      // if (RK(B) <= RK(C)) ~= (A ~= 0) then pc++
	opTest    // if not (R(A) <=> C) then pc++
	opTestSet // if R(B) <=> C then R(A) := R(B) else pc++
	opCall    // R(A), … := R(A)(R(A+1), …), B-1 arguments, C-1 results; 0: up to the top
	opTailCall
	opReturn  // return R(A), …, B-1 values; 0: up to the top
	opForLoop // R(A) += R(A+2); if R(A) <= R(A+1) then { pc += Bx; R(A+3) := R(A) }
	opForPrep // R(A) -= R(A+2); pc += Bx
	opTForLoop
	opSetList // R(A)[(C-1)*50+i] := R(A+i) for i in 1…B; 0: up to the top
	opClose   // close the captured variables from R(A) on
	opClosure // R(A) := closure of proto Bx
	opVararg  // R(A), … := varargs, B-1 of them; 0: all
)

// elementsPerFlush is the number of elements that a table constructor collects in registers before it stores them.
const elementsPerFlush = 50

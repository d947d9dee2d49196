/** A reply or a push. Doubles, big numbers and booleans stay text: no reply that is used has them. */
export type Value = string | number | null | ErrorReply | Push | Value[] | Map<Value, Value>

/** The text of an error reply. */
export class ErrorReply {
  constructor(readonly text: string) {}
}

/** What a node sends without being asked. */
export class Push {
  constructor(readonly values: Value[]) {}
}

const maxLineBytes = 1 << 16
const maxDepth = 8
const budgetBytes = 64 << 20 // of one value, with 16 bytes for each element

/** A command as an array of bulk strings. */
export function encode(words: readonly (string | number)[]): string {
  let text = `*${words.length}\r\n`
  for (const word of words) text += `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`
  return text
}

/** Decodes RESP3 from pieces of any size. */
export class Decoder {
  private buffer: Buffer = Buffer.alloc(0)
  private at = 0
  private budget = 0
  private readonly state = this.run()

  constructor(private readonly emit: (value: Value) => void) {
    this.state.next()
  }

  /** Decodes a piece, and emits the values that it completes. Throws if it is not RESP3; the decoder is of no use then. */
  write(piece: Buffer): void {
    this.buffer = this.at === this.buffer.length ? piece : Buffer.concat([this.buffer.subarray(this.at), piece])
    this.at = 0
    this.state.next()
  }

  /** The decoder as a coroutine: each yield waits for the next piece. */
  private *run(): Generator<void, never, void> {
    for (;;) {
      this.budget = budgetBytes
      this.emit(yield* this.value(0))
    }
  }

  private *value(depth: number): Generator<void, Value, void> {
    const line = yield* this.line()
    const rest = line.slice(1)
    switch (line[0]) {
      case '+': case ',': case '#': case '(':
        return rest
      case '-':
        return new ErrorReply(rest)
      case ':':
        return integer(rest)
      case '_':
        return null
    }
    const size = integer(rest)
    if (size === -1) return null
    if (size < 0 || depth === maxDepth) throw new Error('the reply is not RESP3')
    switch (line[0]) {
      case '$': case '=':
        return yield* this.text(size)
      case '!':
        return new ErrorReply(yield* this.text(size))
      case '*': case '~':
        return yield* this.values(size, depth)
      case '>':
        return new Push(yield* this.values(size, depth))
      case '%': {
        const map = new Map<Value, Value>()
        const list = yield* this.values(2 * size, depth)
        for (let i = 0; i < list.length; i += 2) map.set(list[i]!, list[i + 1]!)
        return map
      }
    }
    throw new Error('the reply is not RESP3')
  }

  private *values(count: number, depth: number): Generator<void, Value[], void> {
    this.spend(16 * count)
    const list: Value[] = []
    while (list.length < count) list.push(yield* this.value(depth + 1))
    return list
  }

  private *line(): Generator<void, string, void> {
    let end: number
    while ((end = this.buffer.indexOf('\r\n', this.at)) < 0) {
      if (this.buffer.length - this.at > maxLineBytes) throw new Error('the reply is not RESP3')
      yield
    }
    const line = this.buffer.toString('utf8', this.at, end)
    this.at = end + 2
    return line
  }

  private *text(size: number): Generator<void, string, void> {
    this.spend(size)
    const pieces: Buffer[] = []
    let missing = size + 2
    while (missing > this.buffer.length - this.at) {
      pieces.push(this.buffer.subarray(this.at))
      missing -= this.buffer.length - this.at
      this.at = this.buffer.length
      yield
    }
    pieces.push(this.buffer.subarray(this.at, this.at + missing))
    this.at += missing
    const bytes = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
    if (bytes[size] !== 13 || bytes[size + 1] !== 10) throw new Error('the reply is not RESP3')
    return bytes.toString('utf8', 0, size)
  }

  private spend(bytes: number): void {
    this.budget -= bytes
    if (this.budget < 0) throw new Error('the reply is too long')
  }
}

function integer(text: string): number {
  const n = Number(text)
  if (!/^[+-]?\d+$/.test(text) || !Number.isSafeInteger(n)) throw new Error('the reply is not RESP3')
  return n
}

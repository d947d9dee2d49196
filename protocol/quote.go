package protocol

// AppendQuoted appends word in quotation marks, with what cannot be printed escaped, as Redis's sdscatrepr
// does.
func AppendQuoted[W ~string | ~[]byte](dst []byte, word W) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(word) {
		switch b := word[i]; b {
		case '\\', '"':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\a':
			dst = append(dst, `\a`...)
		case '\b':
			dst = append(dst, `\b`...)
		default:
			if b < ' ' || b > '~' {
				dst = append(dst, '\\', 'x', digits[b>>4], digits[b&15])
				continue
			}
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}

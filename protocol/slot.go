package protocol

import "strings"

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// KeySlot is the hash slot of a key: of what is between the first { and the next }, unless nothing is,
// and else of the whole key.
func KeySlot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if tag := strings.IndexByte(key[open+1:], '}'); tag > 0 {
			key = key[open+1 : open+1+tag]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return int(crc % Slots)
}

// crc16 is the table of CRC-16/XMODEM, polynomial 0x1021.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

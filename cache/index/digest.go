package index

import "encoding/binary"

// digest is a hash of what [Equal] compares, 0 for nil. It does not allocate.
func (s *Service) digest() uint64 {
	if s == nil {
		return 0
	}
	h := hasher(len(s.key))
	h.text(s.key)
	h.text(s.data)
	h.text(s.ports.list.String())
	h.number(uint64(s.typ))
	h.flag(s.vip)
	if s.eps != nil {
		s.eps.digest(&h)
	}
	return h.sum()
}

func (e *endpoints) digest(h *hasher) {
	h.number(uint64(e.hosts))
	h.number(uint64(e.answering))
	h.text(e.labels)
	h.numbers(e.labelEnd)
	for i := range e.groups {
		g := &e.groups[i]
		h.span(g.hosts)
		h.text(g.ports.list.String())
		h.flag(g.unnamed)
	}
	for i := range e.clusters {
		h.text(e.clusters[i].id)
		h.span(e.clusters[i].hosts)
	}
	for i := range e.family {
		h.text(e.family[i].packed)
		h.numbers(e.family[i].hostEnd)
	}
}

// A hasher is FNV-1a over numbers in place of octets; the shift carries the upper bits, which the product alone would
// leave there, to the lower ones. The hashes of package maphash differ from process to process.
type hasher uint64

func (h *hasher) number(n uint64) {
	*h = (*h ^ hasher(n)) * 0x100000001b3
	*h ^= *h >> 32
}

func (h *hasher) numbers(list []uint32) {
	h.number(uint64(len(list)))
	for _, n := range list {
		h.number(uint64(n))
	}
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		h.number(binary.LittleEndian.Uint64([]byte(s[:8])))
	}
	var last [8]byte
	copy(last[:], s)
	h.number(binary.LittleEndian.Uint64(last[:]))
}

func (h *hasher) span(s span) {
	h.number(uint64(s.from))
	h.number(uint64(s.to))
}

func (h *hasher) flag(b bool) {
	if b {
		h.number(1)
		return
	}
	h.number(0)
}

// sum spreads each input over all bits, as splitmix64 does, so that the digests of services can be joined by xor.
func (h *hasher) sum() uint64 {
	n := uint64(*h) + 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

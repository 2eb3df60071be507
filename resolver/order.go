package resolver

// phi spreads successive numbers evenly over 32 bits, also those that a client with a regular pattern of queries sees
// (golden ratio, Weyl sequence).
const phi = 0x9E3779B9

// spread maps a number that moves by one to one of n, so that each stretch of the sequence has each of them about as
// often.
func spread(number uint64, n int) int { return int(uint64(uint32(number*phi)) * uint64(n) >> 32) }

// order is the part of an RRset that is sent, and its order: n records of total, evenly spaced from start on. RRsets
// are in the order of clusters, so that an even part has records of each. Records that follow each other are far apart,
// too: an answer that is cut to what the client takes is as even as the whole.
//
//	RRset   e e e e e e w w w w     total 10: two clusters
//	sent      x   x   x   x   x     n 5, start 1: the part of a capped answer moves once a second and differs by client
//	order     1   3   5   2   4     every third of those that are sent (step 3); rotation 0: it differs from query to query
type order struct{ start, rotation, step, n, total uint32 }

// part is where the part starts that is shown of a capped answer, as a fraction of the RRset in 1/2^32.
func (q *Question) part() uint32 {
	// the finalizer of splitmix64: successive parts have nothing in common, whatever is capped to how many
	x := q.ClientRotation
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return uint32(x >> 32)
}

// set selects total records, or the part of them that an answer may have. It reports whether these are not all.
func (r *order) set(total int, q *Question, o *Options) (capped bool) {
	*r = order{n: uint32(total), total: uint32(total)}
	if o.MaxAnswers > 0 && total > o.MaxAnswers && !q.Union {
		r.n, r.start, capped = uint32(o.MaxAnswers), uint32(uint64(q.part())*uint64(total)>>32), true
	}
	r.step = step(r.n)
	r.rotation = uint32(spread(q.Rotation, int(r.n)))
	return capped
}

// step is the number nearest to the golden section of n, or above it, that has no divisor in common with n: its
// multiples, modulo n, are all numbers below n, and any few of them that follow each other are far apart.
func step(n uint32) uint32 {
	s := uint32(uint64(n) * phi >> 32)
	for ; n > 2; s++ {
		a, b := n, s
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
	return 1
}

func (r *order) at(i int) int {
	turned := uint32(i) + r.rotation
	if turned >= r.n {
		turned -= r.n
	}
	nth := uint64(turned) * uint64(r.step) % uint64(r.n)
	if r.n == r.total {
		return int(nth)
	}
	pos := r.start + uint32(nth*uint64(r.total)/uint64(r.n))
	if pos >= r.total {
		pos -= r.total
	}
	return int(pos)
}

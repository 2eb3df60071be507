package main

// testGrowth misses two goals: VIP A costs more with many endpoints, and so does a slice change with many services.
func testGrowth() *growthPart {
	flat := func(v float64) summary { return summary{v, v, v} }
	result := func(axis string, size int, p peer, cpu, megabytes, change float64) growthResult {
		return growthResult{
			Axis: axis, Size: size, Peer: p.name,
			Memory:      memoryResult{Peer: p.name, Resident: flat(megabytes * 1e6)},
			CPU:         map[string]summary{growthVIP: flat(cpu), growthHost: flat(10)},
			Growth:      map[string]summary{growthVIP: flat(cpu / 10), growthHost: flat(1)},
			SliceChange: flat(change), ImportChange: flat(50),
		}
	}
	return &growthPart{
		Empty: memoryResult{Peer: "empty", Resident: flat(50e6)},
		Results: []growthResult{
			result(axisServices, 100, inTreePeer, 10, 60, 40), result(axisServices, 100, ourPeer, 10, 60, 40),
			result(axisServices, 100_000, inTreePeer, 30, 300, 90), result(axisServices, 100_000, ourPeer, 10.5, 90, 101),
			result(axisEndpoints, 1_000, inTreePeer, 10, 60, 40), result(axisEndpoints, 1_000, ourPeer, 10, 60, 40),
			result(axisEndpoints, 1_000_000, inTreePeer, 30, 900, 90), result(axisEndpoints, 1_000_000, ourPeer, 12, 250, 40),
		},
	}
}

package main

// grown returns by how much each sum grew, where it did.
func grown(before, after map[string]float64) map[string]float64 {
	more := map[string]float64{}
	for key, v := range after {
		if d := v - before[key]; d != 0 {
			more[key] = d
		}
	}
	return more
}

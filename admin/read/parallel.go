package read

import "sync"

// Parallel calls all functions and returns a function that waits for them.
func Parallel(all ...func()) (wait func()) {
	var g sync.WaitGroup
	for _, f := range all {
		g.Go(f)
	}
	return g.Wait
}

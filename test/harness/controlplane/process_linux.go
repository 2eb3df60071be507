package controlplane

import (
	"errors"
	"io"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// reserve takes the port among all processes that ask this function: an abstract socket leaves no file behind and is
// gone with its process.
func reserve(port int) (io.Closer, error) {
	return net.Listen("unix", "@clusterset-port-"+strconv.Itoa(port))
}

// awaitStopped returns when a signal has stopped every thread of the child.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

package plugin

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin/transfer"
)

// notifyPause is the least time between two NOTIFYs of a zone.
const notifyPause = time.Second

// Notify tells the secondaries of t whenever the serial is another one than they were told, until ctx ends (RFC 1996).
// Several moves while they are told are one the next time. An error is logged when it is another one than before.
func (h *Handler) Notify(ctx context.Context, t *transfer.Transfer, told uint32) {
	serials, cancel := h.store.Subscribe()
	defer cancel()
	failed := make([]string, len(h.zones))
	for {
		if serial := h.store.State().Serial; serial != told {
			told = serial
			if !h.notify(ctx, t, failed) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(notifyPause):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-serials:
		}
	}
}

// logNews logs err unless its text is known, and returns the text.
func logNews(known string, err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if text != known {
		Log.Warningf("notify: %s", text)
	}
	return text
}

// notify tells the secondaries of every zone, and reports whether that is done: a secondary that does not answer takes
// seconds, for which the end of ctx does not wait. Failed is what was logged last for each zone.
func (h *Handler) notify(ctx context.Context, t *transfer.Transfer, failed []string) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, z := range h.zones {
			if ctx.Err() != nil {
				return
			}
			failed[i] = logNews(failed[i], t.Notify(z.origin))
		}
	}()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}

// ListenAddresses are the addresses of a server that listens on hosts: the machine's own for a wildcard. Addresses that
// no other machine can use are left out, unless there are no others.
func ListenAddresses(hosts []string) []netip.Addr {
	var all []netip.Addr
	for _, host := range hosts {
		addr, err := netip.ParseAddr(host)
		if err == nil && !addr.IsUnspecified() {
			all = append(all, addr)
			continue
		}
		for _, own := range interfaceAddresses() {
			// 0.0.0.0 takes IPv4 alone; "" and [::] take both.
			if !addr.Is4() || own.Is4() {
				all = append(all, own)
			}
		}
	}
	var usable, local []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, addr := range all {
		addr = addr.Unmap().WithZone("")
		switch {
		case seen[addr] || addr.IsLinkLocalUnicast():
		case addr.IsLoopback():
			local = append(local, addr)
		default:
			usable = append(usable, addr)
		}
		seen[addr] = true
	}
	if len(usable) == 0 {
		return local
	}
	return usable
}

func interfaceAddresses() (addrs []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		Log.Warningf("addresses of this machine, for ns.dns: %s", err)
		return nil
	}
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs
}

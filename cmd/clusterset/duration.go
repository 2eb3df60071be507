package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// bounds are the least and the greatest value of a duration.
type bounds struct{ from, to time.Duration }

var (
	waits           = bounds{time.Millisecond, 24 * time.Hour}
	leaseTTLs       = bounds{time.Second, broker.MaxHeartbeatTTL}
	logAges         = bounds{time.Second, 365 * 24 * time.Hour}
	credentialLives = bounds{10 * time.Minute, 10 * 365 * 24 * time.Hour}
)

// leaseTTLUsage describes --lease-ttl. The larger TTL counts, that of the flag or that of the heartbeat.
const leaseTTLUsage = "`DURATION` after which a heartbeat has expired, unless the heartbeat asks for more: the TTL of the option lease of the controllers"

// flag adds a flag for a duration within the bounds. Its default is the value that there is.
func (b bounds) flag(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(boundedDuration{value, b}, name, usage)
}

// A boundedDuration is the value of a flag.
type boundedDuration struct {
	*time.Duration
	bounds bounds
}

// Set is a method of [pflag.Value]: pflag puts flag and text before its error.
func (d boundedDuration) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil || value < d.bounds.from || value > d.bounds.to {
		return fmt.Errorf("want a duration from %s to %s", d.bounds.from, d.bounds.to)
	}
	*d.Duration = value
	return nil
}

// Type is a method of [pflag.Value].
func (boundedDuration) Type() string { return "duration" }

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// reviewPeriod is the interval of reviews of the known state.
const reviewPeriod = time.Second

// every calls do once a period, first after one, until ctx ends or do fails.
func every(ctx context.Context, period time.Duration, do func() error) error {
	err := wait.PollUntilContextCancel(ctx, period, false, func(context.Context) (bool, error) { return false, do() })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

package verify

import (
	"os"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

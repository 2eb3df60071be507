package cache

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// performance is the document with the figures that are tested here.
const performance = "../docs/benchmarks/memory.md"

func performanceText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(performance)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStatedSize(t *testing.T) {
	stated := regexp.MustCompile("(?m)^\\| `cache\\.heldSlice` *\\| *(\\d+) *\\|").FindStringSubmatch(performanceText(t))
	if size := unsafe.Sizeof(heldSlice{}); stated == nil || stated[1] != strconv.Itoa(int(size)) {
		t.Errorf("%s states %q octets for cache.heldSlice, want %d", performance, stated, size)
	}
}

// parts reads the rows "| what | octets each | how many | MB |" behind the marker, and the row of their sum.
func parts(t *testing.T) (rows [][3]float64, sum float64) {
	t.Helper()
	_, text, _ := strings.Cut(performanceText(t), "<!-- parts -->")
	text, _, found := strings.Cut(text, "<!-- /parts -->")
	if !found {
		t.Fatalf("%s has no parts", performance)
	}
	number := func(s string) float64 {
		n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(s), ",", ""), 64)
		if err != nil {
			t.Fatalf("%s: %v", performance, err)
		}
		return n
	}
	for _, row := range regexp.MustCompile(`(?m)^\| .*\| *([\d.]+) *\| *([\d,]+) *\| *([\d.]+) *\|$`).FindAllStringSubmatch(text, -1) {
		rows = append(rows, [3]float64{number(row[1]), number(row[2]), number(row[3])})
	}
	total := regexp.MustCompile(`(?m)^\| sum *\| *\| *\| *([\d.]+) *\|$`).FindStringSubmatch(text)
	if total == nil {
		t.Fatalf("%s: the parts have no sum", performance)
	}
	return rows, number(total[1])
}

// The document's parts sum up to its sum, which TestMemory compares with the memory of the largest clusterset.
func TestStatedParts(t *testing.T) {
	rows, stated := parts(t)
	sum := 0.
	for _, row := range rows {
		if megabytes := row[0] * row[1] / 1e6; math.Abs(megabytes-row[2]) > 0.006 {
			t.Errorf("%g octets %.0f times are %.2f MB, and %s says %.2f", row[0], row[1], megabytes, performance, row[2])
		}
		sum += row[2]
	}
	if math.Abs(sum-stated) > 0.06 {
		t.Errorf("the parts in %s are %.2f MB, and it says %.1f", performance, sum, stated)
	}
}

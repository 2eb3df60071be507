package page

import (
	"cmp"
	"fmt"
	"slices"
)

// maxBoxes is how many clusters the map has before those with the fewest exports share one box.
const maxBoxes = 20

// Sizes of the map, in its own units.
const (
	mapWidth  = 960
	boxWidth  = 300
	boxHeight = 48
	boxStep   = 60
	lineWidth = 6 // of the cluster that exports most
	mapName   = 34
)

// An exportMap shows the numbers of exported services as boxes and lines: other clusters on the left, this cluster in
// the middle, and on the right those that its own exports reach. Only these know their imports.
type exportMap struct {
	Width, Height int
	Boxes         []box
	Lines         []line
	Text          string // the same in words
}

// A box is a cluster, or some that share one.
type box struct {
	X, Y, Width, Height int
	Title, Name, Text   string
	Class               string
}

// A line leads from one box to another.
type line struct {
	Path, Width, Title, Class string
}

// mapOf returns the map of a status with all members.
func mapOf(s Status) exportMap {
	var others []Member
	own := Member{ID: cmp.Or(clean(s.Cluster, maxName), "this cluster")}
	for _, m := range s.Members {
		m.ID = clean(m.ID, maxName)
		if m.State == Self {
			own = m
		} else {
			others = append(others, m)
		}
	}
	slices.SortStableFunc(others, func(a, b Member) int {
		return cmp.Or(cmp.Compare(b.Exports, a.Exports), cmp.Compare(a.ID, b.ID))
	})
	boxes, right := boxesOf(others), reachedBoxes(others)
	x := exportMap{Width: mapWidth, Height: max(1, len(boxes), len(right))*boxStep + 12}
	middle := x.Height/2 - boxHeight/2
	center := box{
		X: (mapWidth - 220) / 2, Y: middle, Width: 220, Height: boxHeight, Class: "self",
		Title: own.ID, Name: shorten(own.ID, 24), Text: fmt.Sprintf("imports %d, exports %d", s.Counts.Imports, own.Exports),
	}
	most := 1
	for _, b := range boxes {
		most = max(most, b.imported)
	}
	for i, b := range boxes {
		b.X, b.Y, b.Width, b.Height = 6, i*boxStep+6, boxWidth, boxHeight
		x.Boxes = append(x.Boxes, b.box)
		if b.imported > 0 {
			x.Lines = append(x.Lines, line{
				Path: curve(b.box, center), Width: fmt.Sprintf("%.1f", 1+float64(lineWidth-1)*float64(b.imported)/float64(most)),
				Class: b.Class,
				Title: fmt.Sprintf("%s: %d of %d services are imported here", b.Title, b.imported, b.exports),
			})
		}
	}
	x.Boxes = append(x.Boxes, center)
	reached := 0
	for _, m := range others {
		if m.Offered > 0 {
			reached++
		}
	}
	for i, b := range right {
		b.X, b.Y, b.Width, b.Height = mapWidth-226, i*boxStep+6, 220, boxHeight
		x.Boxes = append(x.Boxes, b)
		x.Lines = append(x.Lines, line{Path: curve(center, b), Width: "2.0", Class: "self",
			Title: fmt.Sprintf("%s exports %s; %s: %s", own.ID, services(own.Exports), b.Title, b.Text)})
	}
	x.Text = fmt.Sprintf(
		"This cluster, %s, imports %s of %s. It exports %s, and %d of these members are offered some. The table of members has the numbers.",
		own.ID, services(s.Counts.Imports), members(len(others)), services(own.Exports), reached)
	return x
}

// reachedBoxes returns a box for each of the members that own exports reach, or for the first of them and all others.
func reachedBoxes(members []Member) []box {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Offered == 0 })
	slices.SortStableFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(b.Offered, a.Offered), cmp.Compare(a.ID, b.ID))
	})
	var boxes []box
	for i, m := range members {
		if i == maxBoxes-1 && len(members) > maxBoxes {
			return append(boxes, box{
				Title: "further members", Name: fmt.Sprintf("%d further members", len(members)-i), Class: "other",
				Text: fmt.Sprintf("are offered up to %d each", m.Offered),
			})
		}
		boxes = append(boxes, box{Title: m.ID, Name: shorten(m.ID, 24), Class: m.State.class(),
			Text: fmt.Sprintf("is offered %d", m.Offered)})
	}
	return boxes
}

// A counted is a box with its numbers.
type counted struct {
	box
	exports, imported int
}

// boxesOf returns a box for each of the members, which are sorted, or for the first of them and all others.
func boxesOf(members []Member) []counted {
	var boxes []counted
	for i, m := range members {
		if i == maxBoxes-1 && len(members) > maxBoxes {
			rest := counted{box: box{Title: "further members", Name: fmt.Sprintf("%d further members", len(members)-i),
				Class: "other"}}
			for _, m := range members[i:] {
				rest.exports, rest.imported = rest.exports+m.Exports, rest.imported+m.Imported
			}
			rest.Text = fmt.Sprintf("export %d, %d imported here", rest.exports, rest.imported)
			return append(boxes, rest)
		}
		b := counted{box{Title: m.ID, Name: shorten(m.ID, mapName), Class: m.State.class()}, m.Exports, m.Imported}
		b.Text = fmt.Sprintf("%s: exports %d, %d imported here", m.State, m.Exports, m.Imported)
		boxes = append(boxes, b)
	}
	return boxes
}

// curve returns the path from the right side of one box to the left side of another.
func curve(from, to box) string {
	x1, y1 := from.X+from.Width, from.Y+from.Height/2
	x2, y2 := to.X-8, to.Y+to.Height/2 // before it, for the arrow
	half := (x1 + x2) / 2
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, half, y1, half, y2, x2, y2)
}

// shorten leaves out the middle of a name that is too long for a box: ends differ where names are made from one
// pattern.
func shorten(name string, n int) string {
	r := []rune(name)
	if len(r) <= n {
		return name
	}
	return string(r[:n-n/3-1]) + "…" + string(r[len(r)-n/3:])
}

func members(n int) string  { return count(n, "other member") }
func services(n int) string { return count(n, "service") }

// class is the class of the state in the style sheet.
func (s MemberState) class() string {
	switch s {
	case Live, Self:
		return "good"
	}
	return "bad"
}

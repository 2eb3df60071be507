// Package golden reads the golden files of the DNS side: objects in, one line each, and the answers of the server out,
// as dig shows them.
//
// A file is a txtar archive. Its comment names the subject and cites the source; these are its parts, of which only
// objects and answers must be there:
//
//	-- zones --       the zones of the block, clusterset.local if left out
//	-- corefile --    the directives of the block
//	-- next --        a zone file of clusterset.local that is served by the next plugin
//	-- objects --     one object a line, see [Expand]
//	-- answers --     one question after the other, each with its answer
//
// A question is "; name TYPE", and a note behind "<-". It is asked over UDP and TCP, with room for the whole answer.
// Its answer is the rcode with the flags aa and tc, the records of the answer section, and those of the others behind
// "authority:" and "additional:". The order of records does not matter. The serial is 1. Where answers differ from time
// to time, "or" stands between the sets that are permitted, or "any N of" before the records of which N are shown.
//
// A line "Manifests only: ..." in the comment gives the reason why no API server takes these objects.
package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/tools/txtar"
)

// A File is one golden file.
type File struct {
	Name          string // without folder and extension
	Comment       string
	ManifestsOnly bool
	Zones         []string
	Corefile      string
	Next          string
	Objects       []string
	Cases         []*Case

	path    string
	archive *txtar.Archive
	head    string // what stands before the first question
}

// Origin is the zone of a zone file that begins with a line $ORIGIN.
func Origin(zoneFile string) string {
	first, _, _ := strings.Cut(zoneFile, "\n")
	return strings.TrimPrefix(first, "$ORIGIN ")
}

// A Case is a question and the answers that are permitted.
type Case struct {
	Question
	Want Want

	text string // as it stands in the file
}

// A Question is one query.
type Question struct {
	Name string
	Type uint16
}

// Bufsize is the size that queries name in their OPT record: room for all goldens.
const Bufsize = 4096

func (q Question) String() string { return q.Name + " " + dns.TypeToString[q.Type] }

// Message is the query.
func (q Question) Message() *dns.Msg {
	m := new(dns.Msg).SetQuestion(q.Name, q.Type)
	return m.SetEdns0(Bufsize, false)
}

// ReadAll reads all golden files of a folder.
func ReadAll(dir string) ([]*File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: want golden files", dir)
	}
	if err != nil {
		return nil, err
	}
	files := make([]*File, 0, len(paths))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := Parse(path, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Parse reads one golden file.
func Parse(path string, b []byte) (*File, error) {
	f := &File{
		Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), Zones: []string{"clusterset.local"},
		path: path, archive: txtar.Parse(b),
	}
	f.Comment = string(f.archive.Comment)
	f.ManifestsOnly = strings.Contains(f.Comment, "Manifests only: ")
	var answers string
	for _, part := range f.archive.Files {
		data := string(part.Data)
		switch part.Name {
		case "zones":
			f.Zones = strings.Fields(data)
		case "corefile":
			f.Corefile = data
		case "next":
			f.Next = data
		case "objects":
			f.Objects = lines(data)
		case "answers":
			answers = data
		default:
			return nil, fmt.Errorf("part %q: want zones, corefile, next, objects or answers", part.Name)
		}
	}
	if err := f.parseAnswers(answers); err != nil {
		return nil, err
	}
	if len(f.Cases) == 0 {
		return nil, fmt.Errorf("no question: want a part answers with lines %q", "; name TYPE")
	}
	return f, nil
}

func (f *File) parseAnswers(text string) error {
	var last *Case
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ";"):
			q, err := parseQuestion(line)
			if err != nil {
				return err
			}
			last = &Case{Question: q}
			f.Cases = append(f.Cases, last)
		case last == nil:
			f.head += line
			continue
		}
		last.text += line
	}
	for _, c := range f.Cases {
		_, answer, _ := strings.Cut(c.text, "\n")
		var err error
		if c.Want, err = parseWant(answer); err != nil {
			return fmt.Errorf("%s: %w", c.Question, err)
		}
	}
	return nil
}

func parseQuestion(line string) (Question, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(line, ";"), "<-")
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return Question{}, fmt.Errorf("question %q: want %q", line, "; name TYPE")
	}
	q := Question{Name: fields[0], Type: dns.StringToType[fields[1]]}
	if q.Type == dns.TypeNone || !dns.IsFqdn(q.Name) {
		return Question{}, fmt.Errorf("question %q: want a known type and a name that ends with a dot", line)
	}
	return q, nil
}

// Update writes the file anew with got in place of answers that are not permitted. Those that are keep their form.
func (f *File) Update(got []Want) error {
	text := f.head
	for i, c := range f.Cases {
		if got[i].equal(c.Want) {
			text += c.text
			continue
		}
		question, _, _ := strings.Cut(c.text, "\n")
		text += question + "\n" + got[i].String()
		if i < len(f.Cases)-1 {
			text += "\n"
		}
	}
	for i := range f.archive.Files {
		if f.archive.Files[i].Name == "answers" {
			f.archive.Files[i].Data = []byte(text)
		}
	}
	return os.WriteFile(f.path, txtar.Format(f.archive), 0o644)
}

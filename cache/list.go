package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An itemList is a list of custom resources, validated.
type itemList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*item
}

// DeepCopyObject makes an itemList a runtime.Object.
func (l *itemList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// GetObjectKind and DeepCopyObject make an item a runtime.Object, as the reflector wants in lists.
func (it *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject shares what never changes.
func (it *item) DeepCopyObject() runtime.Object {
	c := *it
	return &c
}

// readList reads a list in JSON and validates each object as it comes. Half a list is an error.
func readList(r io.Reader, accept func(any) item) (*itemList, error) {
	var list itemList
	if err := list.read(json.NewDecoder(r), accept); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return &list, nil
}

func (l *itemList) read(dec *json.Decoder, accept func(any) item) error {
	found := false
	if err := expectDelim(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		switch key {
		case "metadata":
			err = dec.Decode(&l.ListMeta)
		case "items":
			err = l.readItems(dec, accept)
			found = true
		default:
			err = dec.Decode(new(json.RawMessage))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if err := expectDelim(dec, '}'); err != nil {
		return err
	}
	// Not all that comes with the status 200 is a list, and an empty one would take all names away.
	if !found || l.ResourceVersion == "" {
		return errors.New("want a list with items and a resource version")
	}
	switch got, err := dec.Token(); {
	case err == nil:
		return fmt.Errorf("got %v behind the list, want nothing", got)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func (l *itemList) readItems(dec *json.Decoder, accept func(any) item) error {
	if err := expectDelim(dec, '['); err != nil {
		return err
	}
	for dec.More() {
		var obj customObject
		if err := dec.Decode(&obj); err != nil {
			return err
		}
		it := accept(&obj)
		l.Items = append(l.Items, &it)
	}
	return expectDelim(dec, ']')
}

// expectDelim reads what comes next, and fails if it is anything else.
func expectDelim(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err == nil && got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return err
}

package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// Description is what a description file says (docs/format/description.md), with
// its types looked up and its values still as text. CreateFrom makes a snapshot of
// it, and Describe such a file of a snapshot. It is not changed by use.
type Description struct {
	name      string // of the file
	text      []byte
	operators []describedJSON
	classes   serializer.Classes
	// unparsed says why some classes have no type; nothing may need them.
	unparsed error
	hash     serializer.HashRules
}

// DescriptionOptions changes how a description is read. Nil is the default.
type DescriptionOptions struct {
	// Classes are POJOs and enums that the description names and does not
	// describe; its own come before them.
	Classes serializer.Classes
	// Hash are rules of classes' hashCode, likewise.
	Hash serializer.HashRules
	// Name of the file, for errors.
	Name string
	// MaxBytes bounds the file, which is held in memory; 0 is 1 GiB.
	MaxBytes int64
}

const defaultMaxDescription = 1 << 30

// The members of a description. Values stay raw: only their type can read them.
type (
	descriptionJSON struct {
		Format    int               `json:"format"`
		Comment   json.RawMessage   `json:"comment"`
		Watermark json.RawMessage   `json:"watermark"`
		Classes   []string          `json:"classes"`
		HashCodes map[string]string `json:"hash_codes"`
		Operators []describedJSON   `json:"operators"`
	}
	describedJSON struct {
		UID                string              `json:"uid"`
		UIDHash            string              `json:"uid_hash"`
		Name               string              `json:"name"`
		Comment            json.RawMessage     `json:"comment"`
		MaxParallelism     int                 `json:"max_parallelism"`
		Parallelism        int                 `json:"parallelism"`
		Keyed              *keyedJSON          `json:"keyed"`
		OperatorStates     []operatorStateJSON `json:"operator_states"`
		RawKeyed           []rawKeyedJSON      `json:"raw_keyed"`
		Coordinator        *string             `json:"coordinator"`
		CoordinatorVersion *int32              `json:"coordinator_version"`
	}
	keyedJSON struct {
		KeyType       string           `json:"key_type"`
		KeySerializer string           `json:"key_serializer"`
		States        []keyedStateJSON `json:"states"`
		Timers        []timerJSON      `json:"timers"`
	}
	keyedStateJSON struct {
		Name                string      `json:"name"`
		Kind                string      `json:"kind"`
		Type                string      `json:"type"`
		Serializer          string      `json:"serializer"`
		TTL                 bool        `json:"ttl"`
		TTLMillis           json.Number `json:"ttl_ms"`
		Reduce              string      `json:"reduce"`
		NamespaceType       string      `json:"namespace_type"`
		NamespaceSerializer string      `json:"namespace_serializer"`
		Entries             []entryJSON `json:"entries"`
	}
	entryJSON struct {
		Key        json.RawMessage `json:"key"`
		KeyGroup   *int            `json:"key_group"`
		Namespace  json.RawMessage `json:"namespace"`
		Value      json.RawMessage `json:"value"`
		LastAccess json.RawMessage `json:"last_access"`
	}
	timerJSON struct {
		Key                 json.RawMessage `json:"key"`
		KeyGroup            *int            `json:"key_group"`
		Time                json.Number     `json:"time"`
		Domain              string          `json:"domain"`
		Service             string          `json:"service"`
		NamespaceType       string          `json:"namespace_type"`
		NamespaceSerializer string          `json:"namespace_serializer"`
		Namespace           json.RawMessage `json:"namespace"`
	}
	operatorStateJSON struct {
		Name          string            `json:"name"`
		Mode          string            `json:"mode"`
		Type          string            `json:"type"`
		Serializer    string            `json:"serializer"`
		KeySerializer string            `json:"key_serializer"`
		Entries       []json.RawMessage `json:"entries"`
	}
	rawKeyedJSON struct {
		KeyGroup int    `json:"key_group"`
		Bytes    string `json:"bytes"`
	}
)

// DescriptionError says that a description cannot be made a snapshot of, and where.
type DescriptionError struct {
	Name string // of the file
	Line int    // from 1; 0 is not known
	Err  error
}

func (e *DescriptionError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s: line %d: %v", e.Name, e.Line, e.Err)
}

// Unwrap gives the cause.
func (e *DescriptionError) Unwrap() error { return e.Err }

// placedError knows the members and indexes below which its cause is.
type placedError struct {
	path []any
	err  error
}

func (e *placedError) Error() string { return e.err.Error() }

func (e *placedError) Unwrap() error { return e.err }

// placed puts an error of a part where the part is; nil stays nil.
func placed(err error, path ...any) error {
	if err == nil {
		return nil
	}
	var below *placedError
	if errors.As(err, &below) {
		path = append(path, below.path...)
	}
	return &placedError{path, err}
}

// failed is an error of the description with the line of its place.
func (d *Description) failed(err error) error {
	out := &DescriptionError{Name: d.name, Err: err}
	var at *placedError
	if errors.As(err, &at) {
		out.Line = lineOf(d.text, offsetOf(d.text, at.path))
	}
	return out
}

// offsetOf is where in the text of a description a part is, as far as the path to it
// can be followed.
func offsetOf(text []byte, path []any) int64 {
	dec := json.NewDecoder(bytes.NewReader(text))
	at := int64(0)
	for _, step := range path {
		if _, err := dec.Token(); err != nil { // the opening bracket
			return at
		}
		found := false
		for i := 0; !found && dec.More(); i++ {
			found = step == any(i)
			if name, ok := step.(string); ok {
				t, err := dec.Token()
				if err != nil {
					return at
				}
				found = t == json.Token(name)
			}
			if !found {
				var other json.RawMessage
				if dec.Decode(&other) != nil {
					return at
				}
			}
		}
		if !found {
			return at
		}
		at = dec.InputOffset()
		for at < int64(len(text)) && strings.IndexByte(" \t\r\n:,", text[at]) >= 0 {
			at++
		}
	}
	return at
}

// ReadDescription reads a description file. What is wrong with it is a
// *DescriptionError; another error is the reader's.
func ReadDescription(r io.Reader, opts *DescriptionOptions) (*Description, error) {
	if opts == nil {
		opts = &DescriptionOptions{}
	}
	name := opts.Name
	if name == "" {
		name = "description"
	}
	limit := opts.MaxBytes
	if limit <= 0 {
		limit = defaultMaxDescription
	}
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &DescriptionError{Name: name, Err: fmt.Errorf("has more than %d bytes", limit)}
	}
	var file descriptionJSON
	d := &Description{name: name, text: text, classes: serializer.Classes{}, hash: serializer.HashRules{}}
	at := func(offset int64, err error) error {
		return &DescriptionError{Name: name, Line: lineOf(text, offset), Err: err}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, at(jsonError(text, dec.InputOffset(), err))
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return nil, at(int64(len(text)-len(rest)), fmt.Errorf("there is text behind the description"))
	}
	if offset, err := checkMembers(text[:dec.InputOffset()], reflect.TypeFor[descriptionJSON]()); err != nil {
		return nil, at(int64(offset), err)
	}
	if file.Format != 1 {
		return nil, d.failed(placed(fmt.Errorf("format is %d: only 1 is known", file.Format), "format"))
	}
	d.operators = file.Operators
	for class, t := range opts.Classes {
		d.classes[class] = t
	}
	for class, rule := range opts.Hash {
		d.hash[class] = rule
	}
	if err := d.addClasses(file.Classes); err != nil {
		return nil, d.failed(placed(fmt.Errorf("classes: %w", err), "classes"))
	}
	for class, text := range file.HashCodes {
		rule, err := ParseHashRule(text)
		if err != nil {
			return nil, d.failed(placed(fmt.Errorf("hash_codes: class %s: %w", class, err), "hash_codes", class))
		}
		d.hash[class] = rule
	}
	ids := map[metadata.OperatorID]string{}
	for i := range d.operators {
		o := &d.operators[i]
		id, err := o.id()
		if err == nil && ids[id] != "" {
			err = fmt.Errorf("is %s again", ids[id])
		}
		if err != nil {
			return nil, d.failed(placed(fmt.Errorf("operators[%d]: %w", i, err), "operators", i))
		}
		ids[id] = o.label()
	}
	return d, nil
}

// addClasses parses the words of classes, which may name each other in any order.
// Those that have no type are left out. A class comes once.
func (d *Description) addClasses(list []string) error {
	own := map[string]bool{}
	for len(list) > 0 {
		var later []string
		for _, words := range list {
			t, err := serializer.ParseType(words, d.classes)
			if err == nil && t.JavaClass == "" {
				err = fmt.Errorf("%q names no class", words)
			}
			if err != nil {
				later, d.unparsed = append(later, words), err
				continue
			}
			if own[t.JavaClass] {
				return fmt.Errorf("class %s comes twice", t.JavaClass)
			}
			own[t.JavaClass] = true
			d.classes[t.JavaClass] = t
		}
		if len(later) == len(list) {
			break
		}
		list, d.unparsed = later, nil
	}
	return nil
}

// ParseHashRule reads how a class's hashCode is made of its fields:
//
//	Objects.hash(a, b)   as java.util.Objects.hash, Arrays.hashCode and Lombok's
//	                     like do: beginning with 1, 31 * h + the field's hash code
//	hash(a, b)           31 * a + b: beginning with 0, as records and many IDEs do
func ParseHashRule(s string) (serializer.HashRule, error) {
	rule := serializer.HashRule{Start: 1}
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), "Objects.hash(")
	if !ok {
		rule.Start = 0
		rest, ok = strings.CutPrefix(strings.TrimSpace(s), "hash(")
	}
	fields, closed := strings.CutSuffix(rest, ")")
	if !ok || !closed {
		return rule, fmt.Errorf("%q is neither Objects.hash(FIELD, …) nor hash(FIELD, …)", s)
	}
	for _, f := range strings.Split(fields, ",") {
		if f = strings.TrimSpace(f); f == "" || strings.ContainsAny(f, "() ") {
			return rule, fmt.Errorf("%q does not list fields", s)
		}
		rule.Fields = append(rule.Fields, f)
	}
	return rule, nil
}

func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:max(0, min(offset, int64(len(text))))], []byte{'\n'})
}

// jsonError is an error of encoding/json, and where in the text it is.
func jsonError(text []byte, offset int64, err error) (int64, error) {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind) && kind.Field == "":
		return kind.Offset, fmt.Errorf("the description cannot be a JSON %s", kind.Value)
	case errors.As(err, &kind):
		return kind.Offset, fmt.Errorf("%s cannot be a JSON %s", kind.Field, kind.Value)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return int64(len(text)), fmt.Errorf("the JSON ends early")
	}
	return offset, errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func (o *describedJSON) label() string {
	if o.UID != "" {
		return "operator " + shortName(o.UID)
	}
	return "operator " + shortName(o.UIDHash)
}

func (o *describedJSON) id() (metadata.OperatorID, error) {
	switch {
	case o.UID != "" && o.UIDHash != "":
		return metadata.OperatorID{}, fmt.Errorf("has uid and uid_hash")
	case o.UID != "":
		return metadata.OperatorIDFromUID(o.UID), nil
	case o.UIDHash == "":
		return metadata.OperatorID{}, fmt.Errorf("has neither uid nor uid_hash")
	}
	return metadata.ParseOperatorID(o.UIDHash)
}

// typeOf is a type by its serializer snapshot in hex, if there is one, else by words.
func (d *Description) typeOf(words, snapshot string) (*serializer.Type, error) {
	if snapshot != "" {
		b, err := hex.DecodeString(snapshot)
		if err != nil {
			return nil, fmt.Errorf("serializer snapshot of %s: %w", words, err)
		}
		r := javaio.NewReader(b)
		t, err := serializer.ReadSnapshot(r)
		if err == nil && r.Len() > 0 {
			err = fmt.Errorf("%d bytes are left over", r.Len())
		}
		if err != nil { // bad text, and no damage of a snapshot
			return nil, fmt.Errorf("serializer snapshot of %s: %v", words, err)
		}
		return t, opaque(t)
	}
	if words == "" {
		return nil, fmt.Errorf("its type is missing")
	}
	t, err := serializer.ParseType(words, d.classes)
	switch {
	case err != nil && d.unparsed != nil:
		return nil, fmt.Errorf("%w (classes: %w)", err, d.unparsed)
	case err != nil:
		return nil, err
	}
	return t, opaque(t)
}

// opaque refuses a type that only its class can write.
func opaque(t *serializer.Type) error {
	var found *serializer.Type
	t.Walk(func(n *serializer.Type) bool {
		if found == nil && (n.Kind == serializer.KindOpaque || n.Kind == serializer.KindDynamic) {
			found = n
		}
		return found == nil
	})
	if found != nil {
		return fmt.Errorf("only its class can write values of %s", found)
	}
	return nil
}

// listOf and mapOf are the parts of words list<T> and map<K,V>.
func (d *Description) listOf(words, snapshot string) (*serializer.Type, error) {
	t, err := d.typeOf(words, snapshot)
	if err == nil && (t.Kind != serializer.KindList || t.Elem() == nil) {
		err = fmt.Errorf("its type is %s, not list<T>", t)
	}
	return t, err
}

func (d *Description) mapOf(words, snapshot string) (*serializer.Type, error) {
	t, err := d.typeOf(words, snapshot)
	if err == nil && (t.Kind != serializer.KindMap || t.Key() == nil) {
		err = fmt.Errorf("its type is %s, not map<K,V>", t)
	}
	return t, err
}

// elementsOf are the parts of a JSON array.
func elementsOf(text json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil || list == nil {
		return nil, fmt.Errorf("is no array")
	}
	return list, nil
}

// pairsOf are the parts of a JSON array of [key, value] pairs.
func pairsOf(text json.RawMessage) ([][]json.RawMessage, error) {
	var list [][]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil || list == nil {
		return nil, fmt.Errorf("is no array of [key, value] pairs")
	}
	for _, p := range list {
		if len(p) != 2 {
			return nil, fmt.Errorf("has an entry that is no [key, value] pair")
		}
	}
	return list, nil
}

func isNull(text json.RawMessage) bool { return string(bytes.TrimSpace(text)) == "null" }

// ReadClasses reads a file of classes: on each line the words of a POJO or enum
// and, if keys of it need one, after "=" the rule of its hashCode (ParseHashRule).
// Lines may use the classes of earlier ones; empty lines and those that begin with
// # are skipped. Errors name the line.
func ReadClasses(r io.Reader) (serializer.Classes, serializer.HashRules, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, err
	}
	classes, hash := serializer.Classes{}, serializer.HashRules{}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words, rule, ruled := strings.Cut(line, "=")
		t, err := serializer.ParseType(strings.TrimSpace(words), classes)
		if err == nil && t.JavaClass == "" {
			err = fmt.Errorf("%s names no class", t)
		}
		if err == nil && ruled {
			hash[t.JavaClass], err = ParseHashRule(rule)
		}
		if err == nil && classes[t.JavaClass] != nil {
			err = fmt.Errorf("class %s comes twice", t.JavaClass)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		classes[t.JavaClass] = t
	}
	return classes, hash, nil
}

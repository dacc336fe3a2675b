package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"modernc.org/sqlite/vtab"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// moduleName is that of the virtual tables in CREATE VIRTUAL TABLE.
const moduleName = "tidemark_state"

// module makes the virtual tables of one statement; the argument is the table's id.
type module struct{ run *run }

func (m module) Create(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Connect(ctx, args)
}

func (m module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	id, err := strconv.Atoi(args[len(args)-1])
	if err != nil || id < 0 || id >= len(m.run.cat.tables) {
		return nil, fmt.Errorf("no table %q", args)
	}
	t := m.run.cat.tables[id]
	all := make([]int, len(t.Columns))
	for i := range all {
		all[i] = i
	}
	if err := ctx.Declare("CREATE TABLE x(" + t.declare(all) + ")"); err != nil {
		return nil, err
	}
	return &virtual{run: m.run, t: t}, nil
}

// declare is the column definitions of some columns.
func (t *Table) declare(columns []int) string {
	var b strings.Builder
	for k, i := range columns {
		c := &t.Columns[i]
		if k > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(c.Name) + " " + c.SQL)
		if c.decimal {
			b.WriteString(" COLLATE decimal")
		}
	}
	return b.String()
}

// virtual is a state as SQLite walks over it.
type virtual struct {
	run *run
	t   *Table
}

func (v *virtual) Open() (vtab.Cursor, error) { return &cursor{run: v.run, t: v.t}, nil }
func (v *virtual) Disconnect() error          { return nil }
func (v *virtual) Destroy() error             { return nil }

// Kinds of plans in IdxNum, which EXPLAIN QUERY PLAN shows.
const (
	planScan  = 0
	planKey   = 1
	planGroup = 2
)

// BestIndex looks for a key, or a range of key groups, among the conditions. What
// plan it is, of which table, which parts of rows are wanted and which condition
// comes first stands in IdxStr: t3 parts=2a key kg>=.
func (v *virtual) BestIndex(info *vtab.IndexInfo) error {
	cost, rows := 1e9, int64(1e6)
	var words []string
	args := 0
	take := func(i int, word string) {
		info.Constraints[i].ArgIndex = args
		args++
		words = append(words, word)
	}
	key, group := v.t.partColumn(table.PartKey), v.t.partColumn(table.PartKeyGroup)
	plan := planScan
	if key >= 0 && !v.run.noKey && v.t.keyPushdown() {
		for i, c := range info.Constraints {
			if c.Usable && c.Op == vtab.OpEQ && c.Column == key {
				plan, cost, rows = planKey, 1e5, 10
				take(i, "key")
				break
			}
		}
	}
	if group >= 0 && plan == planScan {
		for i, c := range info.Constraints {
			if word := groupOps[c.Op]; c.Usable && c.Column == group && word != "" {
				plan, cost, rows = planGroup, 1e7, 1e4
				take(i, word)
			}
		}
	}
	info.IdxNum = int64(plan)
	info.IdxStr = strings.Join(append([]string{"t" + strconv.Itoa(v.t.id), "parts=" + strconv.FormatUint(v.t.parts(info.ColUsed), 16)}, words...), " ")
	info.EstimatedCost, info.EstimatedRows = cost, rows
	return nil
}

var groupOps = map[vtab.ConstraintOp]string{vtab.OpEQ: "kg=", vtab.OpGE: "kg>=", vtab.OpGT: "kg>", vtab.OpLE: "kg<=", vtab.OpLT: "kg<"}

// partColumn is the column of a whole part, -1 if the table has none.
func (t *Table) partColumn(part table.Part) int {
	for i := range t.Columns {
		if t.schema.Parts[t.Columns[i].part] == part && len(t.Columns[i].path) == 0 {
			return i
		}
	}
	return -1
}

// keyPushdown reports whether a key can be written as the snapshot has it, so that
// equal keys have equal bytes.
func (t *Table) keyPushdown() bool {
	if t.state.Variants > 0 || t.state.Key == nil {
		return false
	}
	switch t.state.Key.Kind {
	case serializer.KindByte, serializer.KindShort, serializer.KindInt, serializer.KindLong, serializer.KindString, serializer.KindEnum:
		return true
	}
	return false
}

// parts is a bit for each part of the schema that the columns of a mask need.
func (t *Table) parts(used uint64) uint64 {
	var parts uint64
	for i := range t.Columns {
		if used&(1<<min(i, 63)) != 0 { // the last bit stands for all columns from 63 on
			parts |= 1 << t.Columns[i].part
		}
	}
	return parts
}

// cursor is one walk over a state.
type cursor struct {
	run *run
	t   *Table

	schema *table.Schema // of the parts wanted
	slots  []int         // by part: the vector's place in a batch, -1 if it is not wanted

	ch     chan *table.Batch
	cancel context.CancelFunc
	done   chan error
	pool   *sync.Pool

	batch *table.Batch
	row   int
	rowid int64
}

// Filter begins a walk.
func (c *cursor) Filter(_ int, idxStr string, vals []vtab.Value) error {
	c.stop()
	opts := *c.run.scan
	state, operator := c.t.state, c.t.state.Operator
	opts.Operator = func(op *snapshot.StateOperator) bool { return op.Position == operator.Position }
	opts.State = func(s *snapshot.State) bool { return s.Name == state.Name && s.Kind == state.Kind }
	words := strings.Fields(idxStr)
	if len(words) < 2 {
		return fmt.Errorf("plan %q", idxStr)
	}
	parts, err := strconv.ParseUint(strings.TrimPrefix(words[1], "parts="), 16, 64)
	if err != nil {
		return err
	}
	first, last := int64(0), int64(math.MaxInt16)
	for i, word := range words[2:] {
		if i >= len(vals) {
			break
		}
		if word == "key" {
			opts.Key = keyBytes(state.Key, vals[i])
			continue
		}
		n, ok := vals[i].(int64)
		if !ok {
			continue // SQLite compares: 3.5, text
		}
		switch word {
		case "kg=":
			first, last = max(first, n), min(last, n)
		case "kg>=":
			first = max(first, n)
		case "kg>":
			first = max(first, n+1) // an overflow is below 0
		case "kg<=":
			last = min(last, n)
		case "kg<":
			last = min(last, max(n, 0)-1)
		}
	}
	if first > last {
		c.batch, c.ch = nil, nil
		return nil
	}
	if first > 0 || last < math.MaxInt16 {
		opts.KeyGroups = &metadata.KeyGroupRange{Start: int32(first), Count: int32(last-first) + 1}
	}
	c.want(parts)
	c.start(&opts)
	return c.Next()
}

// keyBytes is a key as the state's serializer writes it; nil if the value cannot be
// a key's, so that all rows are read.
func keyBytes(t *serializer.Type, v vtab.Value) []byte {
	text, isText := v.(string)
	if isText != (t.Kind == serializer.KindString || t.Kind == serializer.KindEnum) {
		return nil
	}
	b, err := json.Marshal(v)
	switch v.(type) {
	case int64, string:
	default:
		return nil
	}
	if err != nil || strings.ContainsRune(text, '\uFFFD') { // more than one key reads so
		return nil
	}
	key, err := t.AppendFromJSON(nil, b)
	if err != nil {
		return nil
	}
	return key
}

// want makes the schema of the wanted parts, and of those that they come from: a
// TTL's time is in the value, other_json has what does not fit any part.
func (c *cursor) want(parts uint64) {
	full := c.t.schema
	wants := func(p table.Part) bool {
		i := slices.Index(full.Parts, p)
		return i >= 0 && parts&(1<<i) != 0
	}
	for i, p := range full.Parts {
		switch {
		case p <= table.PartKind:
		case wants(table.PartOther), p == table.PartValue && (wants(table.PartTTLMin) || wants(table.PartTTLMax)):
			parts |= 1 << i
		}
	}
	c.schema = &table.Schema{State: full.State}
	c.slots = make([]int, len(full.Columns))
	for i := range full.Columns {
		c.slots[i] = -1
		if parts&(1<<i) == 0 {
			continue
		}
		c.slots[i] = len(c.schema.Columns)
		c.schema.Columns = append(c.schema.Columns, full.Columns[i])
		c.schema.Parts = append(c.schema.Parts, full.Parts[i])
		c.schema.Const = append(c.schema.Const, full.Const[i])
	}
}

// Rows of a piece: as many as its bytes or its number allow.
const (
	pieceBytes = 64 << 10
	pieceRows  = 2048
)

type collector struct {
	c     *cursor
	batch *table.Batch
}

func (p *collector) Add(r *snapshot.StateRow) (full bool, err error) {
	if p.batch == nil {
		p.batch = p.c.pool.Get().(*table.Batch)
	}
	if class := p.batch.Add(r); class != "" {
		p.c.run.undecoded(class)
	}
	return p.batch.Rows == pieceRows || p.batch.Rows%16 == 0 && p.batch.Size() >= pieceBytes, nil
}

func (p *collector) Take() (*table.Batch, bool) {
	b := p.batch
	p.batch = nil
	return b, b != nil && b.Rows > 0
}

// start reads rows on goroutines of their own.
func (c *cursor) start(opts *snapshot.ScanOptions) {
	ctx, cancel := context.WithCancel(c.run.ctx)
	c.cancel, c.ch, c.done = cancel, make(chan *table.Batch, 4), make(chan error, 1)
	schema := c.schema
	c.pool = &sync.Pool{New: func() any { return table.NewBatch(schema) }}
	c.batch, c.row, c.rowid = nil, 0, 0
	ch, done := c.ch, c.done
	go func() {
		err := snapshot.Collect(ctx, c.run.s, opts, func(int) snapshot.Collector[*table.Batch] { return &collector{c: c} }, func(b *table.Batch) error {
			select {
			case ch <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		done <- err
		close(ch)
	}()
}

// stop ends the walk and waits for its goroutines.
func (c *cursor) stop() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	for range c.ch { // until it is closed
	}
	c.cancel, c.batch = nil, nil
}

func (c *cursor) Next() error {
	c.rowid++
	if c.batch != nil {
		if c.row++; c.row < c.batch.Rows {
			return nil
		}
		c.batch.Reset()
		c.pool.Put(c.batch)
		c.batch = nil
	}
	if c.ch == nil {
		return nil
	}
	b, ok := <-c.ch
	if !ok {
		c.ch = nil
		err := <-c.done
		c.cancel()
		c.cancel = nil
		if err != nil && !errors.Is(err, context.Canceled) || err != nil && c.run.ctx.Err() != nil {
			c.run.fail(err)
			return err
		}
		return nil
	}
	c.batch, c.row = b, 0
	c.run.counted(b)
	return nil
}

func (c *cursor) Eof() bool { return c.batch == nil }

func (c *cursor) Column(col int) (vtab.Value, error) {
	if c.batch == nil || col < 0 || col >= len(c.t.Columns) {
		return nil, nil
	}
	def := &c.t.Columns[col]
	slot := c.slots[def.part]
	if slot < 0 {
		return nil, nil
	}
	v := c.batch.Vectors[slot]
	for _, f := range def.path {
		if v.Null(c.row) {
			return nil, nil
		}
		v = v.Fields[f]
	}
	return sqlValue(v, c.row), nil
}

func (c *cursor) Rowid() (int64, error) { return c.rowid, nil }

func (c *cursor) Close() error {
	c.stop()
	return nil
}

// usedColumns is in order the columns of a set of folded names.
func (t *Table) usedColumns(names map[string]bool) []int {
	var out []int
	for i := range t.Columns {
		if names[fold(t.Columns[i].Name)] {
			out = append(out, i)
		}
	}
	if len(out) == 0 { // rows are only counted
		out = append(out, 0)
	}
	return slices.Clip(out)
}

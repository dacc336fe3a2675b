package keyedtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Model does random things to all kinds of state of some subtasks, and the same
// to plain maps: operations, timers, time that passes, views and snapshots that are
// read while updates go on, restores at another parallelism. A failure prints a
// seed; -rapid.seed replays it, -rapid.checks=100000 does many.
func (o Opener) Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, o, false)
		defer m.close()
		t.Repeat(m.actions())
	})
}

type (
	window = serializer.Window
	inWin  = keyed.At[string, window]
	inName = keyed.At[string, string]
)

// timer is a timer of the model.
type timer struct {
	key string
	w   window
	at  int64
}

// stamped is a value of the model with its last access.
type stamped[V any] struct {
	at int64
	v  V
}

// model is what the state must be.
type model struct {
	value map[string]string
	list  map[inWin][]int64
	m     map[string]map[int64]string
	red   map[inName]int64
	agg   map[string]sumCount
	event map[timer]bool
	proc  map[timer]bool

	ttlValue map[string]stamped[string]
	ttlList  map[string][]stamped[int64]
	ttlMap   map[string]map[int64]stamped[string]
}

func newModel() *model {
	return &model{
		map[string]string{}, map[inWin][]int64{}, map[string]map[int64]string{}, map[inName]int64{}, map[string]sumCount{}, map[timer]bool{}, map[timer]bool{},
		map[string]stamped[string]{}, map[string][]stamped[int64]{}, map[string]map[int64]stamped[string]{},
	}
}

func cloneMaps[K, A comparable, B any](m map[K]map[A]B) map[K]map[A]B {
	c := map[K]map[A]B{}
	for k, v := range m {
		c[k] = maps.Clone(v)
	}
	return c
}

func cloneLists[K comparable, T any](m map[K][]T) map[K][]T {
	c := map[K][]T{}
	for k, v := range m {
		c[k] = slices.Clone(v)
	}
	return c
}

func (m *model) clone() *model {
	return &model{
		maps.Clone(m.value), cloneLists(m.list), cloneMaps(m.m), maps.Clone(m.red), maps.Clone(m.agg), maps.Clone(m.event), maps.Clone(m.proc),
		maps.Clone(m.ttlValue), cloneLists(m.ttlList), cloneMaps(m.ttlMap),
	}
}

// expire drops what has expired.
func (m *model) expire(ttl keyed.TTLConfig, now int64) {
	old := func(at int64) bool { return at+ttl.Duration.Milliseconds() <= now }
	maps.DeleteFunc(m.ttlValue, func(_ string, v stamped[string]) bool { return old(v.at) })
	for k, l := range m.ttlList {
		if l = slices.DeleteFunc(l, func(v stamped[int64]) bool { return old(v.at) }); len(l) == 0 {
			delete(m.ttlList, k)
		} else {
			m.ttlList[k] = l
		}
	}
	for k, x := range m.ttlMap {
		maps.DeleteFunc(x, func(_ int64, v stamped[string]) bool { return old(v.at) })
		if len(x) == 0 {
			delete(m.ttlMap, k)
		}
	}
}

// subtask is a backend with its handles.
type subtask struct {
	Backend[string]
	*states
	ttlValue *keyed.ValueState[string, string]
	ttlList  *keyed.ListState[string, int64]
	ttlMap   *keyed.MapState[string, int64, string]
}

// frozen is a view or snapshot of all subtasks with what it must hold.
type frozen struct {
	tasks []*subtask
	views []keyed.View
	model *model

	id      int64
	kind    kind
	writer  *snapshot.Writer
	now     int64
	cancel  context.CancelFunc
	done    chan error
	handles []metadata.KeyedHandle
	stored  *snapshot.Snapshot // once it is complete
}

// kind is how a snapshot is written and restored.
type kind string

const (
	incremental kind = "incremental"
	full        kind = "full"      // refers to no earlier checkpoint
	canonical   kind = "canonical" // a savepoint
	local       kind = "local"     // incremental, restored with the copies on the local disk
)

var kinds = []kind{incremental, full, canonical, local}

func (k kind) options(compress bool) keyed.UploadOptions {
	o := keyed.UploadOptions{Full: k == full}
	o.Compress = compress
	if k == canonical {
		o.Format = keyed.FormatCanonical
	}
	return o
}

type machine struct {
	t       *rapid.T
	opener  Opener
	opened  []Backend[string]
	max     int
	ttl     keyed.TTLConfig
	clock   keyed.ManualClock
	storage *Storage
	tasks   []*subtask
	model   *model
	views   []*frozen
	snaps   []*frozen
	last    *frozen // the last complete snapshot; nil is none
	steps   int
	// jumps: the clock jumps. Then nothing has expired when a view or snapshot is made, or
	// nobody could tell what it has when the clock is back.
	jumps bool
	// short: few keys, and the state is only compared where a history says so.
	short bool
}

func newMachine(t *rapid.T, o Opener, short bool) *machine {
	m := &machine{t: t, opener: o, storage: NewStorage(t), model: newModel(), short: short}
	m.max = rapid.SampledFrom([]int{1, 3, 8, 200}).Draw(t, "max parallelism")
	m.ttl = keyed.TTLConfig{
		Duration: 10 * time.Millisecond, OnRead: rapid.Bool().Draw(t, "on read"), ReturnExpired: rapid.Bool().Draw(t, "return expired"),
		KeepInSnapshots: rapid.Bool().Draw(t, "keep in snapshots"),
	}
	if m.ttl.ReturnExpired {
		m.ttl.Background = -1 // else nobody knows when an expired value goes
	}
	m.jumps = rapid.Bool().Draw(t, "jumps")
	m.clock.Set(1000)
	m.tasks = m.open(m.parallelism(t, 3), nil)
	return m
}

// parallelism draws one; in short histories it is 1 more often, since opening backends is
// most of their cost.
func (m *machine) parallelism(t *rapid.T, most int) int {
	if m.short && rapid.Bool().Draw(t, "one subtask") {
		return 1
	}
	return rapid.IntRange(1, min(m.max, most)).Draw(t, "parallelism")
}

// open makes subtasks, which restore a snapshot if it is not nil; local are those whose local
// copies of it they may use.
func (m *machine) open(parallelism int, from *snapshot.Snapshot, local ...*subtask) []*subtask {
	var tasks []*subtask
	var folders []string
	for _, s := range local {
		if d, ok := s.Backend.(interface{ Folder() string }); ok {
			folders = append(folders, d.Folder())
		}
	}
	for i := range parallelism {
		first, last := serializer.KeyGroupRange(i, parallelism, m.max)
		c := keyed.Config[string]{
			Key: serializer.String, MaxParallelism: m.max, KeyGroups: metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)}, Clock: &m.clock,
		}
		var b Backend[string]
		var err error
		if len(folders) > 0 {
			b, err = m.opener.Near(m.t, c, folders)
		} else {
			b, err = m.opener.String(m.t, c)
		}
		require.NoError(m.t, err)
		m.opened = append(m.opened, b)
		early := from == nil || rapid.Bool().Draw(m.t, "register first")
		restore := func() {
			if from != nil {
				require.NoError(m.t, b.Restore(context.Background(), keyed.RestoreSource{Snapshot: from}))
			}
		}
		if !early {
			restore()
		}
		s := &subtask{b, register(b),
			keyed.Value(b, "ttl value", serializer.String, keyed.WithTTL(m.ttl)),
			keyed.List(b, "ttl list", serializer.Int64, keyed.WithTTL(m.ttl)),
			keyed.Map(b, "ttl map", serializer.Int64, serializer.String, keyed.WithTTL(m.ttl)),
		}
		if early {
			restore()
		}
		require.NoError(m.t, b.Err())
		tasks = append(tasks, s)
	}
	return tasks
}

func (m *machine) close() {
	for _, f := range m.snaps {
		f.cancel()
		<-f.done
	}
	for _, b := range m.opened { // also those of an action that was cut short
		require.NoError(m.t, b.Close())
	}
}

// key draws a key and gives its subtask.
func (m *machine) key(t *rapid.T) (string, keyed.Key[string], *subtask) {
	key := rapid.SampledFrom([]string{"", "a", "b", "Aa", "BB", "größe", "key 7", "\U0001F600"}).Draw(t, "key")
	k, s := m.route(m.tasks, key)
	return key, k, s
}

func (m *machine) route(tasks []*subtask, key string) (keyed.Key[string], *subtask) {
	k := tasks[0].Key(key)
	return k, tasks[serializer.SubtaskOf(k.Group(), len(tasks), m.max)]
}

func (m *machine) now() int64 { return m.clock.Millis() }

func (m *machine) old(at int64) bool { return at+m.ttl.Duration.Milliseconds() <= m.now() }

func (m *machine) window(t *rapid.T) window {
	w := rapid.Int64Range(0, 2).Draw(t, "window")
	return window{Start: w, End: w + 10}
}

func (m *machine) actions() map[string]func(*rapid.T) {
	a := map[string]func(*rapid.T){
		"": m.invariants, "value set": m.valueSet, "value clear": m.valueClear, "value many": m.valueMany,
		"list add": m.listAdd, "list update": m.listUpdate, "list clear": m.listClear, "list merge": m.listMerge,
		"map put": m.mapPut, "map remove": m.mapRemove, "map many": m.mapMany, "map clear": m.mapClear,
		"red add": m.redAdd, "red clear": m.redClear, "red merge": m.redMerge, "agg add": m.aggAdd,
		"timer register": m.timerRegister, "timer delete": m.timerDelete, "timer advance": m.timerAdvance,
		"time": m.pass, "clock jumps": m.jump, "ttl set": m.ttlSet, "ttl get": m.ttlGet, "ttl list add": m.ttlListAdd, "ttl list get": m.ttlListGet,
		"ttl map put": m.ttlMapPut, "ttl map get": m.ttlMapGet, "clean up": m.cleanUp,
		"view": m.view, "close view": m.closeView, "snapshot": m.snapshot, "finish snapshot": m.finish,
		"abort snapshot": m.abort, "crash": m.crash,
	}
	return a
}

func (m *machine) valueSet(t *rapid.T) {
	key, k, s := m.key(t)
	v := rapid.StringN(0, 5, -1).Draw(t, "v")
	require.NoError(t, s.value.Set(k, v))
	m.model.value[key] = v
}

func (m *machine) valueClear(t *rapid.T) {
	key, k, s := m.key(t)
	require.NoError(t, s.value.Clear(k))
	delete(m.model.value, key)
}

// valueMany sets or clears enough keys to split segments and chunks.
func (m *machine) valueMany(t *rapid.T) {
	most := 900
	if m.short {
		most = 60
	}
	n, from, set := rapid.IntRange(1, most).Draw(t, "n"), rapid.IntRange(0, most*2/3).Draw(t, "from"), rapid.Bool().Draw(t, "set")
	for i := from; i < from+n; i++ {
		key := fmt.Sprint("many ", i)
		k, s := m.route(m.tasks, key)
		if set {
			require.NoError(t, s.value.Set(k, key))
			m.model.value[key] = key
		} else {
			require.NoError(t, s.value.Clear(k))
			delete(m.model.value, key)
		}
	}
}

func (m *machine) listAdd(t *rapid.T) {
	key, k, s := m.key(t)
	w, v := m.window(t), rapid.SliceOfN(rapid.Int64(), 0, 5).Draw(t, "v")
	if len(v) == 1 {
		require.NoError(t, s.list.Add(k, w, v[0]))
	} else {
		require.NoError(t, s.list.AddAll(k, w, v))
	}
	if at := (inWin{Key: key, Namespace: w}); len(v) > 0 {
		m.model.list[at] = append(m.model.list[at], v...)
	}
}

func (m *machine) listUpdate(t *rapid.T) {
	key, k, s := m.key(t)
	w, v := m.window(t), rapid.SliceOfN(rapid.Int64(), 0, 9).Draw(t, "v")
	at := inWin{Key: key, Namespace: w}
	if rapid.Bool().Draw(t, "own") { // of a part of what it holds
		have, err := s.list.Get(k, w)
		require.NoError(t, err)
		v = have[len(have)/2:]
	}
	want := slices.Clone(v)
	require.NoError(t, s.list.Update(k, w, v))
	if len(want) == 0 {
		delete(m.model.list, at)
	} else {
		m.model.list[at] = want
	}
}

func (m *machine) listClear(t *rapid.T) {
	key, k, s := m.key(t)
	w := m.window(t)
	require.NoError(t, s.list.Clear(k, w))
	delete(m.model.list, inWin{Key: key, Namespace: w})
}

func (m *machine) listMerge(t *rapid.T) {
	key, k, s := m.key(t)
	to, from := m.window(t), []window{m.window(t), m.window(t)}
	require.NoError(t, s.list.MergeNamespaces(k, to, from))
	for _, w := range from {
		if src := (inWin{Key: key, Namespace: w}); w != to && len(m.model.list[src]) > 0 {
			dst := inWin{Key: key, Namespace: to}
			m.model.list[dst] = append(m.model.list[dst], m.model.list[src]...)
			delete(m.model.list, src)
		}
	}
}

func (m *machine) mapPut(t *rapid.T) {
	key, k, s := m.key(t)
	u, v := rapid.Int64Range(-5, 5).Draw(t, "user key"), rapid.StringN(0, 3, -1).Draw(t, "v")
	require.NoError(t, s.m.Put(k, u, v))
	m.put(key, u, v)
}

func (m *machine) put(key string, u int64, v string) {
	if m.model.m[key] == nil {
		m.model.m[key] = map[int64]string{}
	}
	m.model.m[key][u] = v
}

func (m *machine) mapRemove(t *rapid.T) {
	key, k, s := m.key(t)
	u := rapid.Int64Range(-5, 5).Draw(t, "user key")
	require.NoError(t, s.m.Remove(k, u))
	delete(m.model.m[key], u)
	if len(m.model.m[key]) == 0 {
		delete(m.model.m, key)
	}
}

// mapMany makes large maps, and small ones of large ones, while it iterates.
func (m *machine) mapMany(t *rapid.T) {
	key, k, s := m.key(t)
	from, n := rapid.Int64Range(-100, 100).Draw(t, "from"), rapid.Int64Range(1, 150).Draw(t, "n")
	if rapid.Bool().Draw(t, "put") {
		for u := from; u < from+n; u++ {
			require.NoError(t, s.m.Put(k, u, "x"))
			m.put(key, u, "x")
		}
		return
	}
	require.NoError(t, s.m.Entries(k, func(u int64, v string) bool {
		require.Equal(t, m.model.m[key][u], v)
		if u >= from && u < from+n {
			require.NoError(t, s.m.Remove(k, u))
			delete(m.model.m[key], u)
		} else if u%7 == 0 {
			require.NoError(t, s.m.Put(k, u, "y"))
			m.put(key, u, "y")
		}
		return true
	}))
	if len(m.model.m[key]) == 0 {
		delete(m.model.m, key)
	}
}

func (m *machine) mapClear(t *rapid.T) {
	key, k, s := m.key(t)
	require.NoError(t, s.m.Clear(k))
	delete(m.model.m, key)
}

func (m *machine) redAdd(t *rapid.T) {
	key, k, s := m.key(t)
	ns, v := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "ns"), rapid.Int64Range(-9, 9).Draw(t, "v")
	require.NoError(t, s.red.Add(k, ns, v))
	m.model.red[inName{Key: key, Namespace: ns}] += v
}

func (m *machine) redClear(t *rapid.T) {
	key, k, s := m.key(t)
	ns := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "ns")
	require.NoError(t, s.red.Clear(k, ns))
	delete(m.model.red, inName{Key: key, Namespace: ns})
}

func (m *machine) redMerge(t *rapid.T) {
	key, k, s := m.key(t)
	require.NoError(t, s.red.MergeNamespaces(k, "x", []string{"", "x", "y"}))
	for _, ns := range []string{"", "y"} {
		src, dst := inName{Key: key, Namespace: ns}, inName{Key: key, Namespace: "x"}
		if v, ok := m.model.red[src]; ok {
			m.model.red[dst] += v
			delete(m.model.red, src)
		}
	}
}

func (m *machine) aggAdd(t *rapid.T) {
	key, k, s := m.key(t)
	if rapid.IntRange(0, 4).Draw(t, "clear") == 0 {
		require.NoError(t, s.agg.Clear(k))
		delete(m.model.agg, key)
		return
	}
	require.NoError(t, s.agg.Add(k, 3))
	m.model.agg[key] = mean{}.Add(m.model.agg[key], 3)
}

// queue draws one of the two queues.
func (m *machine) queue(t *rapid.T, s *subtask) (*keyed.TimerQueue[string, window], map[timer]bool) {
	if rapid.Bool().Draw(t, "event time") {
		return s.timers.Event, m.model.event
	}
	return s.timers.Processing, m.model.proc
}

var times = []int64{-9223372036854775808, -3, 0, 1, 2, 3, 4, 5, 9223372036854775807}

func (m *machine) timerRegister(t *rapid.T) {
	key, k, s := m.key(t)
	q, want := m.queue(t, s)
	x := timer{key, m.window(t), rapid.SampledFrom(times).Draw(t, "at")}
	added, err := q.Register(k, x.w, x.at)
	require.NoError(t, err)
	require.Equal(t, !want[x], added)
	want[x] = true
}

func (m *machine) timerDelete(t *rapid.T) {
	key, k, s := m.key(t)
	q, want := m.queue(t, s)
	x := timer{key, m.window(t), rapid.SampledFrom(times).Draw(t, "at")}
	deleted, err := q.Delete(k, x.w, x.at)
	require.NoError(t, err)
	require.Equal(t, want[x], deleted)
	delete(want, x)
}

func (m *machine) timerAdvance(t *rapid.T) {
	to := rapid.SampledFrom(times).Draw(t, "to")
	event := rapid.Bool().Draw(t, "event time")
	for i, s := range m.tasks {
		q, want := s.timers.Event, m.model.event
		if !event {
			q, want = s.timers.Processing, m.model.proc
		}
		last := times[0]
		_, err := q.Advance(to, func(x keyed.Timer[string, window]) error {
			require.GreaterOrEqual(t, x.At, last)
			last = x.At
			y := timer{x.Key.Value(), x.Namespace, x.At}
			require.True(t, want[y], "%v fires", y)
			require.Equal(t, m.tasks[0].Key(y.key), x.Key)
			delete(want, y)
			return nil
		})
		require.NoError(t, err)
		for x := range want {
			k := s.Key(x.key)
			require.False(t, x.at <= to && serializer.SubtaskOf(k.Group(), len(m.tasks), m.max) == i, "%v did not fire", x)
		}
	}
}

func (m *machine) pass(t *rapid.T) {
	m.clock.Advance(time.Duration(rapid.IntRange(1, 7).Draw(t, "ms")) * time.Millisecond)
}

// jump sets the clock ahead, as far as all values expire, and back again, behind where it
// was even. What was looked at in between is gone for good.
func (m *machine) jump(t *rapid.T) {
	if !m.jumps {
		t.Skip("the clock does not jump")
	}
	m.clock.Advance(time.Duration(rapid.IntRange(5, 40).Draw(t, "ms ahead")) * time.Millisecond)
	m.settle(t)
	m.clock.Advance(-time.Duration(rapid.IntRange(0, 60).Draw(t, "ms back")) * time.Millisecond)
}

func (m *machine) cleanUp(t *rapid.T) {
	for _, s := range m.tasks {
		s.CleanUp(100)
	}
	if m.ttl.ReturnExpired { // who may still be seen decides what is seen
		m.settle(t)
	}
}

// settle makes the state's expired values certain to be gone.
func (m *machine) settle(t *rapid.T) {
	for range m.max/8 + 40 {
		for _, s := range m.tasks {
			s.CleanUp(100)
		}
	}
	m.model.expire(m.ttl, m.now())
}

func (m *machine) ttlSet(t *rapid.T) {
	key, k, s := m.key(t)
	v := rapid.StringN(0, 3, -1).Draw(t, "v")
	require.NoError(t, s.ttlValue.Set(k, v))
	m.model.ttlValue[key] = stamped[string]{m.now(), v}
}

func (m *machine) ttlGet(t *rapid.T) {
	key, k, s := m.key(t)
	want, has := m.model.ttlValue[key]
	if has && m.old(want.at) {
		delete(m.model.ttlValue, key)
		has = m.ttl.ReturnExpired
	} else if has && m.ttl.OnRead {
		m.model.ttlValue[key] = stamped[string]{m.now(), want.v}
	}
	v, ok, err := s.ttlValue.Get(k)
	require.NoError(t, err)
	require.Equal(t, has, ok)
	if has {
		require.Equal(t, want.v, v)
	}
}

func (m *machine) ttlListAdd(t *rapid.T) {
	key, k, s := m.key(t)
	v := rapid.Int64().Draw(t, "v")
	require.NoError(t, s.ttlList.Add(k, v))
	m.model.ttlList[key] = append(m.model.ttlList[key], stamped[int64]{m.now(), v})
}

func (m *machine) ttlListGet(t *rapid.T) {
	key, k, s := m.key(t)
	var want []int64
	var live []stamped[int64]
	for _, x := range m.model.ttlList[key] {
		if !m.old(x.at) {
			live = append(live, x)
		}
		if !m.old(x.at) || m.ttl.ReturnExpired {
			want = append(want, x.v)
		}
	}
	switch {
	case len(live) == 0:
		delete(m.model.ttlList, key)
	case m.ttl.OnRead:
		for i := range live {
			live[i].at = m.now()
		}
		m.model.ttlList[key] = live
	}
	got, err := s.ttlList.Get(k)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func (m *machine) ttlMapPut(t *rapid.T) {
	key, k, s := m.key(t)
	from, n := rapid.Int64Range(0, 5).Draw(t, "user key"), rapid.SampledFrom([]int64{1, 1, 1, 90}).Draw(t, "n")
	for u := from; u < from+n; u++ {
		require.NoError(t, s.ttlMap.Put(k, u, "x"))
		if m.model.ttlMap[key] == nil {
			m.model.ttlMap[key] = map[int64]stamped[string]{}
		}
		m.model.ttlMap[key][u] = stamped[string]{m.now(), "x"}
	}
}

func (m *machine) ttlMapGet(t *rapid.T) {
	key, k, s := m.key(t)
	u := rapid.Int64Range(0, 5).Draw(t, "user key")
	want, has := m.model.ttlMap[key][u]
	if has && m.old(want.at) {
		if delete(m.model.ttlMap[key], u); len(m.model.ttlMap[key]) == 0 {
			delete(m.model.ttlMap, key)
		}
		has = m.ttl.ReturnExpired
	} else if has && m.ttl.OnRead {
		m.model.ttlMap[key][u] = stamped[string]{m.now(), want.v}
	}
	v, ok, err := s.ttlMap.Get(k, u)
	require.NoError(t, err)
	require.Equal(t, has, ok)
	if has {
		require.Equal(t, want.v, v)
	}
}

func (m *machine) view(t *rapid.T) {
	if len(m.views) > 2 {
		t.Skip("enough views")
	}
	if m.jumps {
		m.settle(t)
	}
	f := &frozen{tasks: m.tasks, model: m.model.clone(), now: m.now()}
	for _, s := range m.tasks {
		v, err := s.View()
		require.NoError(t, err)
		f.views = append(f.views, v)
	}
	m.views = append(m.views, f)
}

func (m *machine) closeView(t *rapid.T) {
	if len(m.views) == 0 {
		t.Skip("no view")
	}
	i := rapid.IntRange(0, len(m.views)-1).Draw(t, "which")
	m.compare(t, m.views[i])
	for _, v := range m.views[i].views {
		v.Close()
	}
	m.views = slices.Delete(m.views, i, i+1)
}

// snapshot freezes the state and begins to write it beside what comes next.
func (m *machine) snapshot(t *rapid.T) {
	if len(m.snaps) > 1 {
		t.Skip("enough snapshots")
	}
	if m.jumps {
		m.settle(t)
	}
	f := &frozen{tasks: m.tasks, model: m.model.clone(), now: m.now(), done: make(chan error, 1)}
	f.kind = rapid.SampledFrom(kinds).Draw(t, "kind")
	o := f.kind.options(rapid.Bool().Draw(t, "compress"))
	f.writer, f.id = m.storage.Begin(t, rapid.SampledFrom([]int{0, -1}).Draw(t, "inline"))
	var snaps []keyed.Snapshot
	for _, s := range m.tasks {
		sn, err := s.Snapshot(context.Background(), f.id)
		require.NoError(t, err)
		snaps = append(snaps, sn)
	}
	m.snaps = append(m.snaps, f)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() {
		var failed error
		for _, sn := range snaps {
			h, err := upload(ctx, f.writer, sn, o)
			if err != nil && failed == nil {
				failed = err
			}
			f.handles = append(f.handles, h)
		}
		f.done <- failed
	}()
}

// abort gives up a snapshot that is being written, or is written and not complete.
func (m *machine) abort(t *rapid.T) {
	if len(m.snaps) == 0 {
		t.Skip("no snapshot")
	}
	f := m.snaps[0]
	m.snaps = m.snaps[1:]
	m.giveUp(t, f)
	if rapid.Bool().Draw(t, "told") {
		for _, s := range f.tasks {
			s.Aborted(f.id)
		}
	}
}

// giveUp ends a snapshot that will not be complete and deletes what it stored.
func (m *machine) giveUp(t *rapid.T, f *frozen) {
	f.cancel()
	if err := <-f.done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, keyed.ErrClosed) {
		require.NoError(t, err)
	}
	f.done <- nil // for close
	require.NoError(t, f.writer.Abort(context.Background()))
}

// crash ends all subtasks at once, with what they are writing, and restores the last
// complete snapshot.
func (m *machine) crash(t *rapid.T) {
	for _, s := range m.tasks {
		require.NoError(t, s.Close())
	}
	for _, f := range m.snaps {
		m.giveUp(t, f)
	}
	m.snaps = nil
	m.failOver(m.restored(t, m.last))
}

// failOver goes on with other subtasks, which have been restored, and their model.
func (m *machine) failOver(tasks []*subtask, model *model) {
	for _, v := range m.views {
		for _, w := range v.views {
			w.Close()
		}
	}
	m.views = nil
	m.tasks, m.model = tasks, model
}

// restored gives subtasks that restored a complete snapshot, and what they must hold.
func (m *machine) restored(t *rapid.T, f *frozen) ([]*subtask, *model) {
	parallelism := m.parallelism(t, 4)
	if f == nil {
		return m.open(parallelism, nil), newModel()
	}
	want := f.model.clone()
	if !m.ttl.KeepInSnapshots && (f.kind == canonical || !m.opener.Incremental) {
		want.expire(m.ttl, f.now)
	}
	var near []*subtask
	if f.kind == local {
		near = f.tasks
	}
	return m.open(parallelism, f.stored, near...), want
}

// finish waits for a snapshot and restores it at some parallelism; the state then may
// go on from there.
func (m *machine) finish(t *rapid.T) {
	if len(m.snaps) == 0 {
		t.Skip("no snapshot")
	}
	f := m.snaps[0]
	m.snaps = m.snaps[1:]
	err := <-f.done
	f.done <- err
	require.NoError(t, err)
	f.cancel()
	f.stored = m.storage.Commit(t, f.writer, operator(m.max), false, f.handles)
	m.last = f
	switch told := rapid.IntRange(0, 3).Draw(t, "told"); {
	case told > 1:
		for _, s := range f.tasks {
			s.Confirmed(f.id)
			if told == 3 {
				s.Confirmed(f.id)
			}
		}
	case told == 1: // as when the answer was lost
		for _, s := range f.tasks {
			s.Aborted(f.id)
		}
	}
	tasks, want := m.restored(t, f)
	m.compare(t, &frozen{tasks: tasks, model: want})
	if rapid.Bool().Draw(t, "fail over") && len(m.snaps) == 0 {
		old := m.tasks
		m.failOver(tasks, want)
		tasks = old
	}
	for _, s := range tasks {
		require.NoError(t, s.Close())
	}
}

func (m *machine) invariants(t *rapid.T) {
	if m.steps++; m.short || m.steps%5 != 0 { // all of it costs more than what is tested
		return
	}
	m.compare(t, &frozen{tasks: m.tasks, model: m.model})
	for _, v := range m.views {
		m.compare(t, v)
	}
}

// compare compares all state, read through views, with a model; expired values
// of both are left out.
func (m *machine) compare(t *rapid.T, f *frozen) {
	t.Helper()
	want, got := f.model.clone(), newModel()
	want.expire(m.ttl, m.now())
	views := f.views
	if views == nil {
		for _, s := range f.tasks {
			v, err := s.View()
			require.NoError(t, err)
			defer v.Close()
			views = append(views, v)
		}
	}
	for i, s := range f.tasks {
		v := views[i]
		require.NoError(t, s.value.AllAt(v, func(k, v string) bool { got.value[k] = v; return true }))
		require.NoError(t, s.list.AllAt(v, func(at inWin, v []int64) bool { got.list[at] = slices.Clone(v); return true }))
		require.NoError(t, s.m.AllAt(v, func(k string, u int64, v string) bool {
			if got.m[k] == nil {
				got.m[k] = map[int64]string{}
			}
			got.m[k][u] = v
			return true
		}))
		require.NoError(t, s.red.AllAt(v, func(at inName, v int64) bool { got.red[at] = v; return true }))
		require.NoError(t, s.agg.AccumulatorsAt(v, func(k string, v sumCount) bool { got.agg[k] = v; return true }))
		require.NoError(t, s.timers.Event.AllAt(v, func(k string, w window, at int64) bool { got.event[timer{k, w, at}] = true; return true }))
		require.NoError(t, s.timers.Processing.AllAt(v, func(k string, w window, at int64) bool { got.proc[timer{k, w, at}] = true; return true }))
		require.NoError(t, s.ttlValue.AllAt(v, func(k, v string) bool { got.ttlValue[k] = stamped[string]{v: v}; return true }))
		require.NoError(t, s.ttlList.AllAt(v, func(k string, v []int64) bool {
			for _, x := range v {
				got.ttlList[k] = append(got.ttlList[k], stamped[int64]{v: x})
			}
			return true
		}))
		require.NoError(t, s.ttlMap.AllAt(v, func(k string, u int64, v string) bool {
			if got.ttlMap[k] == nil {
				got.ttlMap[k] = map[int64]stamped[string]{}
			}
			got.ttlMap[k][u] = stamped[string]{v: v}
			return true
		}))
	}
	for k, v := range want.ttlValue {
		want.ttlValue[k] = stamped[string]{v: v.v}
	}
	for _, l := range want.ttlList {
		for i := range l {
			l[i].at = 0
		}
	}
	for _, x := range want.ttlMap {
		for u, v := range x {
			x[u] = stamped[string]{v: v.v}
		}
	}
	require.Equal(t, want, got)
	// A few single keys, which are found by other means.
	for i, key := range []string{"a", "Aa", "many 3", "many 700", "größe"} {
		k, s := m.route(f.tasks, key)
		v := views[slices.Index(f.tasks, s)]
		x, ok, err := s.value.GetAt(v, k)
		require.NoError(t, err)
		y, has := want.value[key]
		require.Equal(t, has, ok, "key %s", key)
		require.Equal(t, y, x)
		l, err := s.list.GetAt(v, k, window{Start: 1, End: 11})
		require.NoError(t, err)
		require.Equal(t, len(want.list[inWin{Key: key, Namespace: window{Start: 1, End: 11}}]), len(l))
		mv, ok, err := s.m.GetAt(v, k, int64(i))
		require.NoError(t, err)
		wv, has := want.m[key][int64(i)]
		require.Equal(t, has, ok)
		require.Equal(t, wv, mv)
		if f.views == nil { // as the task reads it
			x, ok, err := s.value.Get(k)
			require.NoError(t, err)
			require.Equal(t, has2(want.value, key), ok)
			require.Equal(t, y, x)
			var keys []int64
			require.NoError(t, s.m.Entries(k, func(u int64, _ string) bool { keys = append(keys, u); return true }))
			require.Len(t, keys, len(want.m[key]))
			require.True(t, slices.IsSortedFunc(keys, func(a, b int64) int {
				if uint64(a) < uint64(b) {
					return -1
				}
				return 1
			}))
		}
	}
}

func has2[K comparable, V any](m map[K]V, k K) bool { _, ok := m[k]; return ok }

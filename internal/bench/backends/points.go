//go:build linux

package main

import (
	"runtime"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// point runs one variant: two passes to warm up, then the timed ones. op does
// operation i of a pass with key k, undo puts the state back.
func point(variant string, seq []int64, op func(pass, i int, k int64), undo func(k int64)) {
	if !wanted(variant) {
		return
	}
	var results costs
	for pass := range 2 + *runs {
		runtime.GC()
		took := measure(func() {
			for i, k := range seq {
				op(pass, i, k)
			}
		})
		if undo != nil {
			for _, k := range seq {
				undo(k)
			}
		}
		if pass >= 2 {
			results.add(took, len(seq))
		}
	}
	results.report("w1", variant, "op")
}

// Sink keeps what was read, so that no read is optimized away.
var Sink int64

func w1() error {
	n := count(500_000)
	uni, zip, perm := uniform(n, n, 1), zipf(n, n, 0.99, 2), permutation(n, 3)
	for part, f := range map[string]func(){
		"values": func() { w1Values(n, uni, zip, perm) },
		"lists":  func() { w1Lists(n, uni, zip, perm) },
		"maps":   func() { w1Maps(n, uni, zip, perm) },
		"folds":  func() { w1Folds(n, uni) },
	} {
		if *parts == "" || slices.Contains(strings.Split(*parts, ","), part) {
			f()
		}
	}
	return nil
}

func w1Values(n int, uni, zip, perm []int64) {
	before := heapMiB()
	b := open()
	s := keyed.Value(b, "state", serializer.Int64)
	for k := range int64(n) {
		must(s.Set(b.Key(k), int64(mix(uint64(k)))))
	}
	report("w1", *label+"/value-long", "heap_after_setup", "MiB", heapMiB()-before)
	for name, seq := range map[string][]int64{"uniform": uni, "zipf": zip} {
		point(*label+"/value-long-get/"+name, seq, func(_, _ int, k int64) {
			v, _, _ := s.Get(b.Key(k))
			Sink += v
		}, nil)
		point(*label+"/value-long-update/"+name, seq, func(_, i int, k int64) { must(s.Set(b.Key(k), int64(i))) }, nil)
	}
	point(*label+"/value-long-getupdate/uniform", uni, func(_, _ int, k int64) {
		key := b.Key(k)
		v, _, _ := s.Get(key)
		must(s.Set(key, v+1))
	}, nil)
	batch, vals, found := make([]keyed.Key[int64], 256), make([]int64, 256), make([]bool, 256)
	point(*label+"/value-long-getmany256/uniform", uni, func(_, i int, k int64) {
		if batch[i%256] = b.Key(k); i%256 == 255 {
			must(s.GetMany(batch, vals, found))
			Sink += vals[0]
		}
	}, nil)
	point(*label+"/value-long-setmany256/uniform", uni, func(_, i int, k int64) {
		batch[i%256], vals[i%256] = b.Key(k), int64(i)
		if i%256 == 255 {
			must(s.SetMany(batch, vals))
		}
	}, nil)
	point(*label+"/value-long-addnew/permuted", perm, func(p, i int, k int64) { must(s.Set(b.Key(k+int64(n*(p+1))), int64(i))) }, nil)
	must(b.Close())

	pool := make([][]byte, 1024)
	for i := range pool {
		pool[i] = value100(int64(i), 1)
	}
	before = heapMiB()
	b = open()
	v := keyed.Value(b, "state", serializer.Bytes)
	for k := range int64(n) {
		must(v.Set(b.Key(k), value100(k, 0)))
	}
	report("w1", *label+"/value-100B", "heap_after_setup", "MiB", heapMiB()-before)
	for name, seq := range map[string][]int64{"uniform": uni, "zipf": zip} {
		point(*label+"/value-100B-get/"+name, seq, func(_, _ int, k int64) {
			x, _, _ := v.Get(b.Key(k))
			Sink += int64(len(x))
		}, nil)
		point(*label+"/value-100B-update/"+name, seq, func(_, i int, k int64) { must(v.Set(b.Key(k), pool[i%1024])) }, nil)
	}
	point(*label+"/value-100B-addnew/permuted", perm, func(p, i int, k int64) { must(v.Set(b.Key(k+int64(n*(p+1))), pool[i%1024])) }, nil)
	must(b.Close())

	texts := make([]string, 1024)
	for i := range texts {
		texts[i] = string100(int64(i), 1)
	}
	b = open()
	str := keyed.Value(b, "state", serializer.String)
	for k := range int64(n) {
		must(str.Set(b.Key(k), string100(k, 0)))
	}
	point(*label+"/value-string100-get/uniform", uni, func(_, _ int, k int64) {
		x, _, _ := str.Get(b.Key(k))
		Sink += int64(len(x))
	}, nil)
	point(*label+"/value-string100-update/uniform", uni, func(_, i int, k int64) { must(str.Set(b.Key(k), texts[i%1024])) }, nil)
	must(b.Close())
}

func w1Lists(n int, uni, zip, perm []int64) {
	before := heapMiB()
	b := open()
	s := keyed.List(b, "state", serializer.Int64)
	one := func(k int64) {
		v := [1]int64{int64(mix(uint64(k)))}
		must(s.Update(b.Key(k), v[:]))
	}
	for k := range int64(n) {
		one(k)
	}
	report("w1", *label+"/list-1", "heap_after_setup", "MiB", heapMiB()-before)
	point(*label+"/list1-get/uniform", uni, func(_, _ int, k int64) {
		l, _ := s.Get(b.Key(k))
		Sink += int64(len(l))
	}, nil)
	iterate := func(_, _ int, k int64) {
		l, _ := s.Get(b.Key(k))
		for _, x := range l {
			Sink += x
		}
	}
	point(*label+"/list1-getiterate/uniform", uni, iterate, nil)
	point(*label+"/list1-getiterate/zipf", zip, iterate, nil)
	single := []int64{0}
	point(*label+"/list1-update1/uniform", uni, func(_, i int, k int64) {
		single[0] = int64(i)
		must(s.Update(b.Key(k), single))
	}, nil)
	point(*label+"/list-add/permuted", perm, func(_, i int, k int64) { must(s.Add(b.Key(k), int64(i))) }, one)
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(i)
	}
	few := perm[:n/10]
	point(*label+"/list-addall100/permuted", few, func(_, _ int, k int64) { must(s.AddAll(b.Key(k), hundred)) }, one)
	point(*label+"/list-update100/permuted", few, func(_, _ int, k int64) { must(s.Update(b.Key(k), hundred)) }, nil)
	for _, k := range few {
		must(s.Update(b.Key(k), hundred))
	}
	point(*label+"/list100-getiterate/permuted", few, iterate, nil)
	point(*label+"/list-addnew/permuted", perm, func(p, i int, k int64) { must(s.Add(b.Key(k+int64(n*(p+1))), int64(i))) }, nil)
	must(b.Close())
}

func w1Maps(n int, uni, zip, perm []int64) {
	before := heapMiB()
	b := open()
	s := keyed.Map(b, "state", serializer.Int64, serializer.Int64)
	for k := range int64(n) {
		for u := range int64(10) {
			must(s.Put(b.Key(k), u, int64(mix(uint64(k)))))
		}
	}
	report("w1", *label+"/map-10", "heap_after_setup", "MiB", heapMiB()-before)
	for name, seq := range map[string][]int64{"uniform": uni, "zipf": zip} {
		point(*label+"/map10-get/"+name, seq, func(_, i int, k int64) {
			v, _, _ := s.Get(b.Key(k), int64(i%10))
			Sink += v
		}, nil)
	}
	point(*label+"/map10-contains/uniform", uni, func(_, i int, k int64) {
		if ok, _ := s.Contains(b.Key(k), int64(i%20)); ok {
			Sink++
		}
	}, nil)
	few := uni[:n/5]
	point(*label+"/map10-isempty/uniform", few, func(_, _ int, k int64) {
		if ok, _ := s.IsEmpty(b.Key(k)); ok {
			Sink++
		}
	}, nil)
	point(*label+"/map10-keys/uniform", few, func(_, _ int, k int64) {
		must(s.Entries(b.Key(k), func(u, _ int64) bool {
			Sink += u
			return true
		}))
	}, nil)
	point(*label+"/map10-entries/uniform", few, func(_, _ int, k int64) {
		must(s.Entries(b.Key(k), func(u, v int64) bool {
			Sink += u + v
			return true
		}))
	}, nil)
	point(*label+"/map10-put/uniform", uni, func(_, i int, k int64) { must(s.Put(b.Key(k), int64(i%10), int64(i))) }, nil)
	point(*label+"/map10-putnew/permuted", perm, func(_, i int, k int64) { must(s.Put(b.Key(k), 10, int64(i))) }, func(k int64) { must(s.Remove(b.Key(k), 10)) })
	for _, k := range perm {
		must(s.Put(b.Key(k), 10, k))
	}
	point(*label+"/map10-remove/permuted", perm, func(_, _ int, k int64) { must(s.Remove(b.Key(k), 10)) }, func(k int64) { must(s.Put(b.Key(k), 10, k)) })
	point(*label+"/map-addnew/permuted", perm, func(p, i int, k int64) { must(s.Put(b.Key(k+int64(n*(p+1))), 10, int64(i))) }, nil)
	must(b.Close())
}

// total is the aggregator of aggregating-add.
type total struct{}

func (total) New() int64             { return 0 }
func (total) Add(a, v int64) int64   { return a + v }
func (total) Merge(a, b int64) int64 { return a + b }
func (total) Result(a int64) int64   { return a }

func w1Folds(n int, uni []int64) {
	b := open()
	r := keyed.Reducing(b, "reducing", func(a, b int64) int64 { return a + b }, serializer.Int64)
	a := keyed.Aggregating(b, "aggregating", total{}, serializer.Int64)
	for k := range int64(n) {
		must(r.Add(b.Key(k), k))
		must(a.Add(b.Key(k), k))
	}
	point(*label+"/reducing-get/uniform", uni, func(_, _ int, k int64) {
		v, _, _ := r.Get(b.Key(k))
		Sink += v
	}, nil)
	point(*label+"/reducing-add/uniform", uni, func(_, i int, k int64) { must(r.Add(b.Key(k), int64(i))) }, nil)
	point(*label+"/aggregating-add/uniform", uni, func(_, i int, k int64) { must(a.Add(b.Key(k), int64(i))) }, nil)
	must(b.Close())
}

func w7() error {
	n := count(1_000_000)
	ks := permutation(n, 3)
	s := splitmix(4)
	at := make([]int64, n)
	for i := range at {
		at[i] = s.below(1_000_000)
	}
	results := map[string]*costs{}
	order := []string{"register", "register-again", "delete", "fire"}
	for _, o := range order {
		results[o] = &costs{}
	}
	var mem []float64
	for run := range 1 + *runs {
		before := heapMiB()
		b := open()
		q := keyed.Timers(b, "user-timers", serializer.VoidNS).Event
		step := func(name string, ops func() int) {
			runtime.GC()
			var done int
			took := measure(func() { done = ops() })
			if run > 0 {
				results[name].add(took, done)
			}
		}
		register := func() int {
			for i, k := range ks {
				if _, err := q.Register(b.Key(k), struct{}{}, at[i]); err != nil {
					panic(err)
				}
			}
			return n
		}
		step("register", register)
		mem = append(mem, heapMiB()-before)
		step("register-again", register)
		step("delete", func() int {
			for i, k := range ks[:n/2] {
				if _, err := q.Delete(b.Key(k), struct{}{}, at[i]); err != nil {
					panic(err)
				}
			}
			return n / 2
		})
		step("fire", func() int {
			fired := 0
			for w := int64(10_000); w <= 1_000_000; w += 10_000 {
				m, err := q.Advance(w, func(keyed.Timer[int64, struct{}]) error {
					Sink++
					return nil
				})
				must(err)
				fired += m
			}
			return fired
		})
		must(b.Close())
	}
	for _, o := range order {
		results[o].report("w7", *label+"/"+o, "timer")
	}
	report("w7", *label+"/register", "heap_after", "MiB", mem...)
	return nil
}

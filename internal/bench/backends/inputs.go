//go:build linux

package main

import (
	"fmt"
	"math"
)

// The generators of bench-flink's WORKLOADS.md.

type splitmix uint64

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (s *splitmix) next() uint64 {
	*s += 0x9E3779B97F4A7C15
	return mix(uint64(*s))
}

func (s *splitmix) below(n int) int64 { return int64(s.next() % uint64(n)) }

func (s *splitmix) unit() float64 { return float64(s.next()>>11) * 0x1p-53 }

func permutation(n int, seed uint64) []int64 {
	p := make([]int64, n)
	for i := range p {
		p[i] = int64(i)
	}
	s := splitmix(seed)
	for i := n - 1; i > 0; i-- {
		j := s.below(i + 1)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

func uniform(n, count int, seed uint64) []int64 {
	s := splitmix(seed)
	out := make([]int64, count)
	for i := range out {
		out[i] = s.below(n)
	}
	return out
}

func zipf(n, count int, theta float64, seed uint64) []int64 {
	s := splitmix(seed)
	perm := permutation(n, seed+1)
	zetan := 0.0
	for i := 1; i <= n; i++ {
		zetan += math.Pow(float64(i), -theta)
	}
	zeta2 := 1 + math.Pow(0.5, theta)
	alpha := 1 / (1 - theta)
	eta := (1 - math.Pow(2/float64(n), 1-theta)) / (1 - zeta2/zetan)
	out := make([]int64, count)
	for i := range out {
		u := s.unit()
		uz := u * zetan
		rank := 0
		switch {
		case uz < 1:
		case uz < zeta2:
			rank = 1
		default:
			rank = min(n-1, int(float64(n)*math.Pow(eta*u-eta+1, alpha)))
		}
		out[i] = perm[rank]
	}
	return out
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func value100(key, version int64) []byte {
	golden := uint64(0x9E3779B97F4A7C15)
	s := splitmix(uint64(key)*golden + uint64(version))
	b := make([]byte, 0, 100)
	for range 6 {
		w := s.next()
		for shift := 56; shift >= 0; shift -= 8 {
			b = append(b, byte(w>>shift))
		}
	}
	return append(b, letters...)
}

func string100(key, version int64) string {
	golden := uint64(0x9E3779B97F4A7C15)
	s := splitmix(uint64(key)*golden + uint64(version))
	return fmt.Sprintf("%016x%016x%016x%s", s.next(), s.next(), s.next(), letters)
}

// checkVectors compares the generators with what WORKLOADS.md says they return.
func checkVectors() error {
	s := splitmix(1)
	if a, b := s.next(), s.next(); a != 10451216379200822465 || b != 13757245211066428519 {
		return fmt.Errorf("splitmix64(1) is %d %d", a, b)
	}
	for name, v := range map[string]struct {
		seq  []int64
		want uint64
	}{
		"uniform":     {uniform(500000, 500000, 1), 5874192955687108540},
		"zipf":        {zipf(500000, 500000, 0.99, 2), 581014504136072255},
		"permutation": {permutation(500000, 3), 9729460949615898092},
	} {
		sum := uint64(0)
		for _, x := range v.seq {
			sum = sum*31 + uint64(x)
		}
		if sum != v.want {
			return fmt.Errorf("%s has checksum %d, not %d", name, sum, v.want)
		}
	}
	if got := fmt.Sprintf("%x", value100(42, 1)[:8]); got != "3c821fbf59108163" {
		return fmt.Errorf("value100(42, 1) begins with %s", got)
	}
	if got := string100(42, 1)[:16]; got != "3c821fbf59108163" {
		return fmt.Errorf("string100(42, 1) begins with %s", got)
	}
	return nil
}

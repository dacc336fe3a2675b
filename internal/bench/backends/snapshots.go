//go:build linux

package main

import "errors"

func w3() error  { return errors.New("not yet") }
func w4() error  { return errors.New("not yet") }
func dip() error { return errors.New("not yet") }

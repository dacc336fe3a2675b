//go:build !nohdfs

package main

import _ "github.com/tidemark/tidemark/blobstore/hdfs" // leave it out with -tags nohdfs

package incremental

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
)

// An OPTIONS file has no checksum, and nothing in a restore reads it. What a flipped
// bit breaks is still mostly found: the file's form is strict, each column family
// repeats the same options, and the names and kinds of the database's options are
// known. Only a digit of one of the database's numbers and a letter of a path may
// change unseen; another subtask's file, which has the same settings, tells of the
// former: see CompareOptions. Source: RocksDB, options/options_parser.cc.

// optionsHead begins the file.
const optionsHead = "# This is a RocksDB option file.\n#\n# For detailed file format spec, please refer to the example file\n# in examples/rocksdb_option_file_example.ini\n#\n"

// The options of a database by the kind of their values, of RocksDB 6 to 10.
var (
	dbFlags = strings.Fields("" +
		"advise_random_on_open allow_2pc allow_concurrent_memtable_write allow_data_in_errors allow_fallocate allow_ingest_behind allow_mmap_reads " +
		"allow_mmap_writes atomic_flush avoid_flush_during_recovery avoid_flush_during_shutdown avoid_unnecessary_blocking_io background_close_inactive_wals " +
		"best_efforts_recovery compaction_verify_record_count create_if_missing create_missing_column_families dump_malloc_stats enable_pipelined_write " +
		"enable_thread_tracking enable_write_thread_adaptive_yield enforce_single_del_contracts error_if_exists fail_if_options_file_error " +
		"flush_verify_memtable_count is_fd_close_on_exec manual_wal_flush new_table_reader_for_compaction_inputs paranoid_checks persist_stats_to_disk " +
		"prefix_seek_opt_in_only preserve_deletes skip_checking_sst_file_sizes_on_db_open skip_stats_update_on_db_open strict_bytes_per_sync " +
		"track_and_verify_wals track_and_verify_wals_in_manifest two_write_queues unordered_write use_adaptive_mutex use_direct_io_for_flush_and_compaction " +
		"use_direct_reads use_fsync verify_sst_unique_id_in_manifest write_dbid_to_manifest write_identity_file ")
	dbNumbers = strings.Fields("" +
		"WAL_size_limit_MB WAL_ttl_seconds base_background_compactions bgerror_resume_retry_interval bytes_per_sync compaction_readahead_size " +
		"db_write_buffer_size delayed_write_rate delete_obsolete_files_period_micros follower_catchup_retry_count follower_catchup_retry_wait_ms " +
		"follower_refresh_catchup_period_ms keep_log_file_num log_file_time_to_roll log_readahead_size manifest_preallocation_size max_background_compactions " +
		"max_background_flushes max_background_jobs max_bgerror_resume_count max_file_opening_threads max_log_file_size max_manifest_file_size " +
		"max_manifest_space_amp_pct max_open_files max_subcompactions max_total_wal_size max_write_batch_group_size_bytes random_access_max_buffer_size " +
		"recycle_log_file_num stats_dump_period_sec stats_history_buffer_size stats_persist_period_sec table_cache_numshardbits wal_bytes_per_sync " +
		"writable_file_max_buffer_size write_thread_max_yield_usec write_thread_slow_yield_usec ")
	dbWords = map[string][]string{
		"access_hint_on_compaction_start": {"NORMAL"},
		"db_host_id":                      {"__hostname__"},
		"file_checksum_gen_factory":       {"nullptr"},
		"info_log_level":                  {"INFO_LEVEL"},
		"lowest_used_cache_tier":          {"kNonVolatileBlockTier"},
		"metadata_write_temperature":      {"kUnknown"},
		"wal_compression":                 {"kNoCompression"},
		"wal_filter":                      {"nullptr"},
		"wal_recovery_mode":               {"kPointInTimeRecovery"},
		"wal_write_temperature":           {"kUnknown"},
	}
	dbPaths = []string{"wal_dir", "db_log_dir", "db_paths"}
)

// optionLine is one option.
type optionLine struct {
	name, value string
	at          int // of the line
}

type optionSection struct {
	kind, family string
	at           int
	lines        []optionLine
}

// splitOptions takes the file apart; form is told of what is not as RocksDB writes it.
func splitOptions(data []byte, form func(at int, detail string)) []optionSection {
	var sections []optionSection
	if !strings.HasPrefix(string(data), optionsHead) {
		form(0, "does not begin as RocksDB's option files do")
	}
	off := 0
	for line := range strings.Lines(string(data)) {
		at := off
		off += len(line)
		line = strings.TrimSuffix(line, "\n")
		switch {
		case at < len(optionsHead) || line == "" || line == "  ":
		case line[0] == '[':
			kind, family, _ := strings.Cut(strings.TrimSuffix(line[1:], "]"), " ")
			family = strings.TrimSuffix(strings.TrimPrefix(family, `"`), `"`)
			switch {
			case kind == "Version" || kind == "DBOptions":
				if line != "["+kind+"]" {
					form(at, fmt.Sprintf("section %q is none", line))
				}
			case kind == "CFOptions" || kind == "TableOptions/BlockBasedTable" || kind == "TableOptions/PlainTable":
				if line != "["+kind+` "`+family+`"]` {
					form(at, fmt.Sprintf("section %q is none", line))
				}
			default:
				form(at, fmt.Sprintf("section %q is none", line))
			}
			sections = append(sections, optionSection{kind: kind, family: family, at: at})
		default:
			name, value, ok := strings.Cut(line, "=")
			if !ok || len(sections) == 0 || !strings.HasPrefix(name, "  ") || strings.TrimLeft(name[2:], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || strings.TrimSpace(value) != value {
				form(at, fmt.Sprintf("line %q is no option", line))
				continue
			}
			s := &sections[len(sections)-1]
			s.lines = append(s.lines, optionLine{name[2:], value, at})
		}
	}
	return sections
}

// checkOptions looks for damage that parseOptions passes by. families are the names of
// the database's column families, nil if they are not known.
func checkOptions(name string, data []byte, families []string) []error {
	var errs []error
	bad := func(at int, detail string) {
		errs = append(errs, &damage.Error{Name: name, Offset: int64(at), Detail: detail, Err: damage.ErrCorrupt})
	}
	sections := splitOptions(data, bad)
	byKind := map[string][]optionSection{}
	named := map[string]int{}
	for _, s := range sections {
		kind, _, _ := strings.Cut(s.kind, "/")
		byKind[kind] = append(byKind[kind], s)
		if s.kind == "CFOptions" || kind == "TableOptions" {
			named[s.family]++
			if families != nil && !slices.Contains(families, unescapeOption(s.family)) {
				bad(s.at, fmt.Sprintf("has a section for %q, which is no column family", s.family))
			}
		}
	}
	if len(byKind["Version"]) != 1 || len(byKind["DBOptions"]) != 1 {
		bad(0, "lacks a section")
		return errs
	}
	for _, f := range families {
		if named[f] == 0 && !strings.ContainsAny(f, ":\\#\r\n") {
			bad(0, fmt.Sprintf("has no section for column family %q", f))
		}
	}
	for _, l := range byKind["Version"][0].lines {
		if l.name != "rocksdb_version" && l.name != "options_file_version" || strings.Trim(l.value, "0123456789.") != "" || l.name == "options_file_version" && l.value != "1.1" {
			bad(l.at, fmt.Sprintf("%s=%s is no version", l.name, l.value))
		}
	}
	for _, l := range byKind["DBOptions"][0].lines {
		if detail := checkDBOption(l); detail != "" {
			bad(l.at, detail)
		}
	}
	for _, kind := range []string{"CFOptions", "TableOptions"} {
		repeated(byKind[kind], bad)
	}
	return errs
}

func checkDBOption(l optionLine) string {
	known := slices.Concat(dbFlags, dbNumbers, dbPaths)
	for name := range dbWords {
		known = append(known, name)
	}
	switch {
	case strings.Contains(l.value, "  ") || strings.Contains(l.value, "="):
		return fmt.Sprintf("%s is %q", l.name, l.value) // two lines whose end was lost
	case !slices.Contains(known, l.name):
		for _, name := range known {
			if oneBit(name, l.name) {
				return fmt.Sprintf("%s is no option, %s is", l.name, name)
			}
		}
	case slices.Contains(dbFlags, l.name):
		if l.value != "true" && l.value != "false" {
			return fmt.Sprintf("%s is %q", l.name, l.value)
		}
	case slices.Contains(dbNumbers, l.name):
		if _, err := strconv.ParseFloat(l.value, 64); err != nil {
			return fmt.Sprintf("%s is %q", l.name, l.value)
		}
	default:
		for _, word := range dbWords[l.name] {
			if oneBit(word, l.value) {
				return fmt.Sprintf("%s is %q, one bit from %q", l.name, l.value, word)
			}
		}
	}
	return ""
}

// repeated compares the sections of column families: they have the same options, and
// a value that is one bit from that of the others was flipped.
func repeated(sections []optionSection, bad func(at int, detail string)) {
	count := map[string]int{}
	values := map[string]map[string]int{}
	for _, s := range sections {
		for _, l := range s.lines {
			count[l.name]++
			if values[l.name] == nil {
				values[l.name] = map[string]int{}
			}
			values[l.name][l.value]++
		}
	}
	for i, s := range sections {
		for _, l := range s.lines {
			if count[l.name] < len(sections) && sections[0].kind == s.kind {
				bad(l.at, fmt.Sprintf("%s stands in %d of %d sections", l.name, count[l.name], len(sections)))
			}
			for v, n := range values[l.name] {
				if own := values[l.name][l.value]; oneBit(v, l.value) && (n > own || n == own && i > 0) {
					bad(l.at, fmt.Sprintf("%s is %q, one bit from %q of other column families", l.name, l.value, v))
				}
			}
		}
	}
}

// oneBit says that two texts differ in one bit.
func oneBit(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	n := 0
	for i := range len(a) {
		if n += bits.OnesCount8(a[i] ^ b[i]); n > 1 {
			return false
		}
	}
	return n == 1
}

// CompareOptions compares the OPTIONS files of two subtasks, which have the same
// settings but for paths: it gives the offset in b and the line there that is one bit
// from that in a. Which of the two is damaged it does not know.
func CompareOptions(a, b []byte) (offset int64, line string, differ bool) {
	x, y := splitOptions(a, func(int, string) {}), splitOptions(b, func(int, string) {})
	for i := range min(len(x), len(y)) {
		for k := range min(len(x[i].lines), len(y[i].lines)) {
			p, q := x[i].lines[k], y[i].lines[k]
			if p.name == q.name && !slices.Contains(dbPaths, p.name) && oneBit(p.value, q.value) {
				return int64(q.at), q.name + "=" + q.value, true
			}
		}
	}
	return 0, "", false
}

package matrix;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.ChecksumType;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompactRangeOptions;
import org.rocksdb.CompressionOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.DataBlockIndexType;
import org.rocksdb.EnvOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.IndexType;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Snapshot;
import org.rocksdb.SstFileWriter;
import org.rocksdb.WriteOptions;

/**
 * Writes one database for each case of the option matrix, and beside it the
 * live entries as RocksDB's own iterator shows them:
 *
 * <pre>
 * OUT/CASE/db/           CURRENT, MANIFEST, OPTIONS and tables
 * OUT/CASE/case.txt      the options, one "name=value" a line
 * OUT/CASE/expected.txt  "family key value" in hex, sorted as RocksDB sorts
 * </pre>
 *
 * <p>Everything follows from the case's name: a second run writes the same entries.
 */
public final class Main {
    static final HexFormat HEX = HexFormat.of();

    final String writer;
    final Path out;

    Main(String writer, Path out) {
        this.writer = writer;
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        RocksDB.loadLibrary();
        Main m = new Main(args[0], Path.of(args[1]));
        List<String> only = Arrays.asList(args).subList(2, args.length);
        if (only.size() == 3 && only.get(0).equals("bench")) {
            Bench.write(m.out, Long.parseLong(only.get(1)), Integer.parseInt(only.get(2)));
            return;
        }
        int n = 0;
        for (Map.Entry<String, Map<String, String>> c : m.cases().entrySet()) {
            if (!only.isEmpty() && !only.contains(c.getKey())) {
                continue;
            }
            m.write(c.getKey(), c.getValue());
            n++;
        }
        System.out.println(n + " databases of " + m.writer);
    }

    /** What is not said of a case: what Flink sets. */
    Map<String, String> base() {
        Map<String, String> o = new LinkedHashMap<>();
        o.put("format", "5");
        o.put("checksum", writer.equals("frocksdb6") ? "kCRC32c" : "kXXH3");
        o.put("compression", "SNAPPY_COMPRESSION");
        o.put("index", "kBinarySearch");
        o.put("indexRestart", "1");
        o.put("blockRestart", "16");
        o.put("blockSize", "512");
        o.put("dict", "0");
        o.put("filter", "none");
        o.put("hashIndex", "false");
        o.put("delta", "true");
        o.put("align", "false");
        o.put("indexCompression", "true");
        o.put("workload", "mixed");
        o.put("entries", "600");
        return o;
    }

    Map<String, Map<String, String>> cases() {
        Map<String, Map<String, String>> cases = new LinkedHashMap<>();
        Map<String, List<String>> values = new LinkedHashMap<>();
        int newest = writer.equals("frocksdb6") ? 5 : writer.equals("frocksdb8") ? 6 : 7;
        List<String> formats = new ArrayList<>();
        for (int v = 2; v <= newest; v++) {
            formats.add(Integer.toString(v));
        }
        values.put("format", formats);
        List<String> checksums = new ArrayList<>(List.of("kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64"));
        if (!writer.equals("frocksdb6")) {
            checksums.add("kXXH3");
        }
        values.put("checksum", checksums);
        values.put("compression", List.of("NO_COMPRESSION", "SNAPPY_COMPRESSION", "ZLIB_COMPRESSION", "BZLIB2_COMPRESSION",
            "LZ4_COMPRESSION", "LZ4HC_COMPRESSION", "ZSTD_COMPRESSION"));
        values.put("index", List.of("kBinarySearch", "kHashSearch", "kTwoLevelIndexSearch", "kBinarySearchWithFirstKey"));
        values.put("indexRestart", List.of("1", "8"));
        values.put("blockRestart", List.of("1", "16"));
        values.put("blockSize", List.of("128", "512", "16384"));
        values.put("dict", List.of("0", "4096"));
        values.put("filter", List.of("none", "bloom", "block", "partitioned"));
        values.put("hashIndex", List.of("false", "true"));
        values.put("delta", List.of("true", "false"));
        values.put("indexCompression", List.of("true", "false"));

        // Each option by itself.
        values.forEach((name, list) -> list.forEach(v -> {
            Map<String, String> o = base();
            o.put(name, v);
            if (name.equals("dict") && !v.equals("0")) {
                for (String c : List.of("SNAPPY_COMPRESSION", "ZLIB_COMPRESSION", "LZ4_COMPRESSION", "ZSTD_COMPRESSION")) {
                    Map<String, String> p = new LinkedHashMap<>(o);
                    p.put("compression", c);
                    cases.put("dict-" + c.substring(0, c.indexOf('_')).toLowerCase(), p);
                }
                return;
            }
            cases.put(name + "-" + v, o);
        }));
        // Every format version with every index type, and with every compression.
        for (String f : formats) {
            for (String i : values.get("index")) {
                Map<String, String> o = base();
                o.put("format", f);
                o.put("index", i);
                o.put("indexRestart", "4");
                cases.put("format-" + f + "-index-" + i, o);
            }
            for (String c : values.get("compression")) {
                Map<String, String> o = base();
                o.put("format", f);
                o.put("compression", c);
                cases.put("format-" + f + "-" + c, o);
            }
            for (String c : checksums) {
                Map<String, String> o = base();
                o.put("format", f);
                o.put("checksum", c);
                o.put("index", "kTwoLevelIndexSearch");
                o.put("filter", "partitioned");
                cases.put("format-" + f + "-" + c, o);
            }
        }
        // Anything with anything.
        Random r = new Random(42);
        for (int i = 0; i < 30; i++) {
            Map<String, String> o = base();
            values.forEach((name, list) -> o.put(name, list.get(r.nextInt(list.size()))));
            cases.put("any-" + i, o);
        }
        Map<String, String> o = base();
        o.put("align", "true");
        o.put("compression", "NO_COMPRESSION");
        cases.put("align", o);
        for (String w : List.of("versions", "ranges", "only-ranges", "merges", "ingested", "ingested-patched", "large", "empty", "families", "long-manifest", "levels")) {
            Map<String, String> p = base();
            p.put("workload", w);
            cases.put("workload-" + w, p);
        }
        // Small ones, to be committed.
        for (String c : values.get("compression")) {
            Map<String, String> p = base();
            p.put("compression", c);
            p.put("workload", "tiny");
            p.put("entries", "40");
            cases.put("tiny-" + c.substring(0, c.indexOf("_COMP")).toLowerCase(), p);
        }
        for (String f : formats) {
            Map<String, String> p = base();
            p.put("format", f);
            p.put("workload", "tiny");
            p.put("entries", "40");
            p.put("index", "kTwoLevelIndexSearch");
            p.put("filter", "partitioned");
            cases.put("tiny-format-" + f, p);
        }
        return cases;
    }

    void write(String name, Map<String, String> o) throws Exception {
        Path dir = out.resolve(name);
        if (Files.exists(dir)) {
            try (Stream<Path> s = Files.walk(dir)) {
                s.sorted((a, b) -> b.compareTo(a)).forEach(p -> p.toFile().delete());
            }
        }
        Files.createDirectories(dir.resolve("db"));
        List<String> lines = new ArrayList<>();
        lines.add("writer=" + writer);
        o.forEach((k, v) -> lines.add(k + "=" + v));
        Files.write(dir.resolve("case.txt"), lines);

        try (Database db = new Database(this, dir, o, name)) {
            try (PrintWriter w = new PrintWriter(Files.newBufferedWriter(dir.resolve("expected.txt")))) {
                db.dump(w);
            }
        } catch (Exception e) {
            throw new Exception("case " + name + ": " + e.getMessage(), e);
        }
        try (Stream<Path> s = Files.list(dir.resolve("db"))) {
            s.filter(p -> !p.getFileName().toString().matches("CURRENT|MANIFEST-.*|OPTIONS-.*|.*\\.sst"))
                .forEach(p -> p.toFile().delete());
        }
        try (Stream<Path> s = Files.list(dir.resolve("db"))) {
            // Only the newest OPTIONS is of use.
            List<Path> options = s.filter(p -> p.getFileName().toString().startsWith("OPTIONS")).sorted().toList();
            for (Path p : options.subList(0, options.size() - 1)) {
                Files.delete(p);
            }
        }
    }

    static CompressionType compression(Map<String, String> o) {
        return CompressionType.valueOf(o.get("compression"));
    }

    static BlockBasedTableConfig table(Map<String, String> o) {
        BlockBasedTableConfig t = new BlockBasedTableConfig();
        t.setFormatVersion(Integer.parseInt(o.get("format")));
        t.setChecksumType(ChecksumType.valueOf(o.get("checksum")));
        t.setIndexType(IndexType.valueOf(o.get("index")));
        t.setIndexBlockRestartInterval(Integer.parseInt(o.get("indexRestart")));
        t.setBlockRestartInterval(Integer.parseInt(o.get("blockRestart")));
        t.setBlockSize(Long.parseLong(o.get("blockSize")));
        t.setMetadataBlockSize(256);
        switch (o.get("filter")) {
            case "bloom" -> t.setFilterPolicy(new BloomFilter(10, false));
            case "block" -> t.setFilterPolicy(new BloomFilter(10, true));
            case "partitioned" -> {
                t.setFilterPolicy(new BloomFilter(10, false));
                t.setPartitionFilters(true);
                t.setIndexType(IndexType.kTwoLevelIndexSearch);
            }
            default -> { }
        }
        if (o.get("hashIndex").equals("true")) {
            t.setDataBlockIndexType(DataBlockIndexType.kDataBlockBinaryAndHash);
        }
        t.setUseDeltaEncoding(o.get("delta").equals("true"));
        t.setBlockAlign(o.get("align").equals("true"));
        t.setEnableIndexCompression(o.get("indexCompression").equals("true"));
        t.setCacheIndexAndFilterBlocks(true);
        return t;
    }

    static ColumnFamilyOptions family(Map<String, String> o) {
        ColumnFamilyOptions c = new ColumnFamilyOptions();
        c.setTableFormatConfig(table(o));
        c.setMergeOperatorName("stringappendtest"); // as Flink does
        c.setCompressionType(compression(o));
        c.setCompressionPerLevel(List.of(compression(o), compression(o), compression(o), compression(o), compression(o), compression(o), compression(o)));
        CompressionOptions z = new CompressionOptions();
        z.setMaxDictBytes(Integer.parseInt(o.get("dict")));
        z.setEnabled(true);
        c.setCompressionOptions(z);
        c.setBottommostCompressionOptions(z);
        if (o.get("index").equals("kHashSearch")) {
            c.useFixedLengthPrefixExtractor(1);
        }
        c.setDisableAutoCompactions(true);
        c.setTargetFileSizeBase(8 << 10);
        c.setMaxBytesForLevelBase(64 << 10);
        c.setLevelZeroSlowdownWritesTrigger(1000);
        c.setLevelZeroStopWritesTrigger(2000);
        return c;
    }
}

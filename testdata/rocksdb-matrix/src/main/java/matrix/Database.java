package matrix;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompactRangeOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.EnvOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Snapshot;
import org.rocksdb.SstFileWriter;
import org.rocksdb.WriteOptions;

/** One database of the matrix: its workload and the dump of what is live. */
final class Database implements AutoCloseable {
    private final Path dir;
    private final Map<String, String> options;
    private final int entries;
    private final Random random;
    private final RocksDB db;
    private final List<ColumnFamilyHandle> families = new ArrayList<>();
    private final WriteOptions write = new WriteOptions().setDisableWAL(true);
    private final DBOptions dbOptions;

    Database(Main main, Path dir, Map<String, String> options, String name) throws RocksDBException {
        this.dir = dir;
        this.options = options;
        this.entries = Integer.parseInt(options.get("entries"));
        this.random = new Random(name.hashCode());
        dbOptions = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true).setMaxOpenFiles(-1);
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        ColumnFamilyOptions c = Main.family(options);
        for (String f : List.of("default", "state", "list")) {
            descriptors.add(new ColumnFamilyDescriptor(f.getBytes(StandardCharsets.UTF_8), c));
        }
        db = RocksDB.open(dbOptions, dir.resolve("db").toString(), descriptors, families);
        switch (options.get("workload")) {
            case "mixed" -> mixed();
            case "tiny" -> tiny();
            case "versions" -> versions();
            case "ranges" -> ranges();
            case "only-ranges" -> onlyRanges();
            case "merges" -> merges();
            case "ingested" -> ingested(false);
            case "ingested-patched" -> ingested(true);
            case "large" -> large();
            case "empty" -> empty();
            case "families" -> manyFamilies();
            case "long-manifest" -> longManifest();
            case "levels" -> levels();
            default -> throw new IllegalArgumentException(options.get("workload"));
        }
    }

    private ColumnFamilyHandle state() {
        return families.get(1);
    }

    private ColumnFamilyHandle list() {
        return families.get(2);
    }

    /** A key as Flink lays it out: key group, key, namespace. */
    private byte[] key(int i) {
        int group = Integer.reverse(i * 0x9E3779B1) & 0x7f;
        String s = String.format("key-%06d", i);
        byte[] k = new byte[2 + s.length()];
        k[0] = (byte) group;
        System.arraycopy(s.getBytes(StandardCharsets.US_ASCII), 0, k, 1, s.length());
        return k;
    }

    private byte[] value(int i) {
        int n = random.nextInt(60);
        StringBuilder b = new StringBuilder("value of " + i + ":");
        while (b.length() < n) {
            b.append(random.nextInt(3) == 0 ? (char) random.nextInt(256) : 'x');
        }
        return b.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    private void put(int i) throws RocksDBException {
        db.put(state(), write, key(i), value(i));
    }

    private void append(int i) throws RocksDBException {
        db.merge(list(), write, key(i), value(i));
    }

    private void flush() throws RocksDBException {
        try (FlushOptions f = new FlushOptions().setWaitForFlush(true)) {
            db.flush(f, families);
        }
    }

    private void compact(ColumnFamilyHandle cf, int level) throws RocksDBException {
        try (CompactRangeOptions c = new CompactRangeOptions().setChangeLevel(true).setTargetLevel(level)) {
            db.compactRange(cf, null, null, c);
        }
    }

    private void tiny() throws RocksDBException {
        for (int i = 0; i < entries; i++) {
            put(i);
        }
        for (int i = 0; i < entries / 8; i++) {
            append(i);
            append(i);
        }
        db.delete(state(), write, key(3));
        db.deleteRange(state(), write, new byte[] {0x10}, new byte[] {0x14});
        flush();
    }

    /** Two levels and two tables of level 0, with everything that Flink does. */
    private void mixed() throws RocksDBException {
        for (int i = 0; i < entries; i++) {
            put(i);
            if (i % 5 == 0) {
                append(i);
            }
        }
        flush();
        compact(state(), 3);
        compact(list(), 3);
        for (int i = 0; i < entries; i += 3) {
            put(i);
        }
        for (int i = 0; i < entries; i += 7) {
            db.delete(state(), write, key(i));
        }
        for (int i = 0; i < entries; i += 10) {
            append(i);
            append(i);
        }
        flush();
        compact(state(), 1);
        for (int i = 0; i < entries; i += 11) {
            put(i);
        }
        db.deleteRange(state(), write, new byte[] {0x20}, new byte[] {0x28});
        db.deleteRange(list(), write, new byte[] {0x20}, new byte[] {0x28});
        flush();
        for (int i = 0; i < entries; i += 13) {
            put(i);
            append(i);
        }
        for (int i = 0; i < entries; i += 20) {
            db.put(list(), write, key(i), value(i)); // Flink's update
            append(i);
        }
        flush();
    }

    /** Many versions of each key in one file, kept by snapshots. */
    private void versions() throws RocksDBException {
        List<Snapshot> snapshots = new ArrayList<>();
        for (int round = 0; round < 40; round++) {
            for (int i = 0; i < 25; i++) {
                switch (random.nextInt(4)) {
                    case 0 -> db.delete(state(), write, key(i));
                    default -> put(i);
                }
                append(i);
            }
            snapshots.add(db.getSnapshot());
        }
        flush();
        compact(state(), 2);
        for (int i = 0; i < 25; i++) {
            put(1000 + i);
            append(i);
        }
        for (int i = 0; i < 10; i++) {
            db.singleDelete(state(), write, key(1000 + i));
        }
        flush();
        for (Snapshot s : snapshots) {
            db.releaseSnapshot(s);
        }
    }

    private void ranges() throws RocksDBException {
        List<Snapshot> snapshots = new ArrayList<>();
        for (int round = 0; round < 12; round++) {
            for (int i = 0; i < entries; i++) {
                if (random.nextInt(4) == 0) {
                    put(i);
                }
            }
            for (int j = 0; j < 6; j++) {
                int a = random.nextInt(128);
                int b = a + 1 + random.nextInt(12);
                byte[] start = key(random.nextInt(entries));
                start[0] = (byte) a;
                byte[] end = key(random.nextInt(entries));
                end[0] = (byte) b;
                if (b <= 127) {
                    db.deleteRange(state(), write, start, end);
                }
            }
            if (round % 3 == 0) {
                snapshots.add(db.getSnapshot());
            }
            flush();
            if (round == 3 || round == 8) {
                compact(state(), round == 3 ? 4 : 2);
            }
        }
        for (Snapshot s : snapshots) {
            db.releaseSnapshot(s);
        }
    }

    private void onlyRanges() throws RocksDBException {
        for (int i = 0; i < entries; i++) {
            put(i);
        }
        flush();
        compact(state(), 2);
        db.deleteRange(state(), write, new byte[] {0x00}, new byte[] {0x30});
        flush();
        db.deleteRange(state(), write, new byte[] {0x60}, new byte[] {(byte) 0x80});
        flush();
    }

    private void merges() throws RocksDBException {
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < 200; i++) {
                switch (random.nextInt(12)) {
                    case 0 -> db.delete(list(), write, key(i));
                    case 1 -> db.put(list(), write, key(i), new byte[0]);
                    case 2 -> db.put(list(), write, key(i), value(i));
                    case 3 -> db.merge(list(), write, key(i), new byte[0]);
                    default -> append(i);
                }
            }
            flush();
            if (round == 2) {
                compact(list(), 5);
            }
            if (round == 4) {
                compact(list(), 3);
            }
        }
    }

    private void ingested(boolean patched) throws RocksDBException {
        for (int i = 0; i < entries; i++) {
            put(i);
        }
        flush();
        // Each file replaces some keys and adds others; the second one lies over the first.
        for (int file = 0; file < 2; file++) {
            String path = dir.resolve("ingest-" + file + ".sst").toString();
            TreeMap<String, Integer> sorted = new TreeMap<>();
            for (int i = file; i < entries + 100; i += 5) {
                sorted.put(Main.HEX.formatHex(key(i)), i);
            }
            try (Options o = new Options(dbOptions, Main.family(options)); SstFileWriter w = new SstFileWriter(new EnvOptions(), o)) {
                w.open(path);
                for (Map.Entry<String, Integer> e : sorted.entrySet()) {
                    w.put(Main.HEX.parseHex(e.getKey()), value(e.getValue()));
                }
                w.finish();
            }
            try (IngestExternalFileOptions in = new IngestExternalFileOptions()) {
                in.setMoveFiles(true);
                in.setWriteGlobalSeqno(patched);
                db.ingestExternalFile(state(), List.of(path), in);
            }
            new java.io.File(path).delete();
            for (int i = 0; i < entries; i += 9) {
                put(i);
            }
            flush();
        }
    }

    private void large() throws RocksDBException {
        for (int i = 0; i < 20; i++) {
            byte[] v = new byte[1 << random.nextInt(20)];
            random.nextBytes(v);
            java.util.Arrays.fill(v, 0, v.length / 2, (byte) i);
            db.put(state(), write, key(i), v);
            byte[] k = new byte[1 + random.nextInt(5000)];
            java.util.Arrays.fill(k, (byte) 'k');
            k[k.length - 1] = (byte) i;
            db.put(state(), write, k, value(i));
        }
        flush();
    }

    private void empty() throws RocksDBException {
        db.put(state(), write, new byte[0], new byte[0]);
        db.put(state(), write, new byte[1], new byte[0]);
        db.put(state(), write, new byte[2], new byte[] {1});
        flush();
        db.put(list(), write, new byte[] {1}, new byte[0]);
        db.merge(list(), write, new byte[] {1}, new byte[0]);
        db.merge(list(), write, new byte[] {2}, new byte[0]);
        flush();
        db.merge(list(), write, new byte[] {1}, new byte[] {'a'});
        db.merge(list(), write, new byte[] {2}, new byte[] {'b'});
        flush();
    }

    private void manyFamilies() throws RocksDBException {
        ColumnFamilyOptions c = Main.family(options);
        List<ColumnFamilyHandle> dropped = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            ColumnFamilyHandle h = db.createColumnFamily(new ColumnFamilyDescriptor(("family ü " + i).getBytes(StandardCharsets.UTF_8), c));
            for (int j = 0; j < 10; j++) {
                db.put(h, write, key(i * 10 + j), value(j));
            }
            (i % 3 == 0 ? dropped : families).add(h);
        }
        flush();
        for (ColumnFamilyHandle h : dropped) {
            db.dropColumnFamily(h);
            h.close();
        }
    }

    /** Edits that need many fragments, over more than one block of the log. */
    private void longManifest() throws RocksDBException {
        for (int round = 0; round < 40; round++) {
            for (int i = 0; i < 2; i++) {
                byte[] k = new byte[3000 + random.nextInt(3000)];
                random.nextBytes(k);
                db.put(state(), write, k, value(i));
            }
            flush();
            if (round % 16 == 15) {
                compact(state(), 2);
            }
        }
    }

    /** A tree as compactions leave it, with moved files and zeroed sequences. */
    private void levels() throws RocksDBException {
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < entries; i++) {
                int k = random.nextInt(entries * 2);
                if (random.nextInt(5) == 0) {
                    db.delete(state(), write, key(k));
                } else {
                    put(k);
                }
                append(random.nextInt(entries));
            }
            flush();
            switch (round) {
                case 1 -> compact(state(), 6);
                case 4 -> compact(state(), 4);
                case 7 -> compact(state(), 2);
                case 8 -> compact(list(), 6);
                default -> { }
            }
        }
    }

    void dump(PrintWriter w) throws RocksDBException {
        for (ColumnFamilyHandle h : families) {
            String family = Main.HEX.formatHex(h.getName());
            try (ReadOptions r = new ReadOptions().setTotalOrderSeek(true); RocksIterator it = db.newIterator(h, r)) {
                for (it.seekToFirst(); it.isValid(); it.next()) {
                    w.println(family + " " + Main.HEX.formatHex(it.key()) + " " + Main.HEX.formatHex(it.value()));
                }
                it.status();
            }
        }
    }

    @Override
    public void close() {
        families.forEach(ColumnFamilyHandle::close);
        db.close();
    }
}

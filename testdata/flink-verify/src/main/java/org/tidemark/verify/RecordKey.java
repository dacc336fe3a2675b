package org.tidemark.verify;

import java.util.Objects;

/** POJO meant as a key, with nested POJOs that may be null. hashCode is made as a record's: 31 * h + the field's, beginning with 0. */
public class RecordKey {
    public long id;
    public String name;
    public WideKey inner;
    public UserKey user;

    public RecordKey() {}

    @Override
    public int hashCode() {
        return 31 * (31 * (31 * Long.hashCode(id) + Objects.hashCode(name)) + Objects.hashCode(inner)) + Objects.hashCode(user);
    }

    @Override
    public boolean equals(Object o) {
        if (!(o instanceof RecordKey)) {
            return false;
        }
        RecordKey k = (RecordKey) o;
        return id == k.id && Objects.equals(name, k.name) && Objects.equals(inner, k.inner) && Objects.equals(user, k.user);
    }
}

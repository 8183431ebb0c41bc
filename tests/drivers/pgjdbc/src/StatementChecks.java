import static java.util.Map.entry;

import java.sql.Array;
import java.sql.Connection;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.Map;
import java.util.UUID;

/** Prepared statements: whose they are, when the driver drops them, what a schema change does to them. */
final class StatementChecks {
  static final int CLIENTS = 30;

  private StatementChecks() {}

  static void register() {
    Frame.check("prepared_30_clients_same_names", StatementChecks::manyClients);
    Frame.check("prepared_thresholds", StatementChecks::thresholds);
    Frame.check("prepared_evicted", StatementChecks::evicted);
    Frame.check("prepared_deallocated", StatementChecks::deallocated);
    Frame.check("prepared_deallocated_in_a_do_block", StatementChecks::deallocatedInDo);
    Frame.check("prepared_metadata", StatementChecks::metadata);
    Frame.check("query_modes", StatementChecks::queryModes);
    Frame.check("types_and_nulls", StatementChecks::typesAndNulls);
    Frame.check("schema_change", StatementChecks::schemaChange);
    Frame.check("schema_change_in_transaction", StatementChecks::schemaChangeInTransaction);
  }

  private static String wanted(int text, int n) {
    return "abc".charAt(text) + String.valueOf(new int[] {n, n + 1, n * 2}[text]);
  }

  private static void manyClients() throws Exception {
    String[] texts = {"select 'a' || ?::int", "select 'b' || (?::int + 1)", "select 'c' || (?::int * 2)"};
    Frame.inParallel(CLIENTS, number -> {
      Connection connection = Frame.connect("prepareThreshold=1");
      PreparedStatement[] statements = new PreparedStatement[3];
      for (int i = 0; i < 3; i++) {
        statements[i] = connection.prepareStatement(texts[(number + i) % 3]);
      }
      for (int turn = 0; turn < 15; turn++) {
        boolean block = turn % 3 == 0;
        connection.setAutoCommit(!block);
        for (int i = 0; i < 3; i++) {
          int n = number * 1000 + turn;
          statements[i].setInt(1, n);
          Frame.same(wanted((number + i) % 3, n), Frame.value(statements[i]));
        }
        if (block && turn % 2 == 0) {
          connection.rollback();
        }
      }
    });
  }

  private static void thresholds() throws Exception {
    // Unnamed at first, then described, then named and binary.
    for (int threshold : new int[] {-1, 0, 1, 3, 5}) {
      Connection connection = Frame.connect("prepareThreshold=" + threshold);
      try (PreparedStatement statement = connection.prepareStatement("select ?::int8 + 1")) {
        for (int n = 0; n < 12; n++) {
          statement.setLong(1, n);
          Frame.same(String.valueOf(n + 1), Frame.value(statement));
        }
      }
    }
  }

  private static void evicted() throws Exception {
    // More texts than the driver keeps: it sends Close for the old ones with its next message.
    Connection connection = Frame.connect("prepareThreshold=1", "preparedStatementCacheQueries=4");
    for (int turn = 0; turn < 4; turn++) {
      for (int n = 0; n < 10; n++) {
        Frame.same(String.valueOf(turn + n), Frame.value(connection, "select ?::int + " + n, turn));
      }
    }
  }

  private static void deallocated() throws Exception {
    // The driver sees the command tag (DEALLOCATE ALL, DISCARD ALL) and forgets its own names.
    Connection connection = Frame.connect("prepareThreshold=1");
    for (String command : new String[] {"deallocate all", "discard all"}) {
      for (int turn = 0; turn < 3; turn++) {
        Frame.same("3", Frame.value(connection, "select ?::int + 1", 2));
        Frame.exec(connection, command);
      }
    }
    Frame.fails("26000", () -> Frame.exec(connection, "execute drv_pgjdbc_unknown"));
  }

  /** No command tag tells of it, so the server's statements are gone and neither driver nor pool knows. */
  private static void deallocatedInDo() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=1");
    Connection other = Frame.connect("prepareThreshold=1");
    String sql = "select ?::int + 1";
    for (int turn = 0; turn < 5; turn++) {
      Frame.same("3", Frame.value(connection, sql, 2));
      Frame.same("3", Frame.value(other, sql, 2));
      Frame.exec(connection, "do $$ begin execute 'deallocate all'; end $$");
      // The driver binds a name that is gone; without a transaction it prepares again by itself.
      Frame.same("3", Frame.value(connection, sql, 2));
      // The other client's statements are not touched, so they must serve in a transaction too.
      other.setAutoCommit(false);
      Frame.same("3", Frame.value(other, sql, 2));
      other.commit();
      other.setAutoCommit(true);
    }
  }

  private static void metadata() throws Exception {
    Connection connection = Frame.connect();
    try (PreparedStatement statement = connection.prepareStatement("select ?::int8 as big, ?::text as words")) {
      ParameterMetaData parameters = statement.getParameterMetaData();
      Frame.same(2, parameters.getParameterCount());
      Frame.same("int8", parameters.getParameterTypeName(1));
      ResultSetMetaData columns = statement.getMetaData();
      Frame.same("words", columns.getColumnName(2));
      statement.setLong(1, 5);
      statement.setString(2, "w");
      Frame.same("5", Frame.value(statement));
    }
    Frame.exec(connection, "drop table if exists drv_pgjdbc_meta", "create table drv_pgjdbc_meta (id int primary key, v text)");
    try (ResultSet columns = connection.getMetaData().getColumns(null, null, "drv_pgjdbc_meta", null)) {
      columns.next();
      Frame.same("id", columns.getString("COLUMN_NAME"));
    }
    Frame.exec(connection, "drop table drv_pgjdbc_meta");
  }

  private static void queryModes() throws Exception {
    for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
      Frame.inParallel(6, number -> {
        Connection connection = Frame.connect("preferQueryMode=" + mode, "prepareThreshold=2");
        for (int turn = 0; turn < 8; turn++) {
          Frame.same(String.valueOf(number + turn), Frame.value(connection, "select ?::int + ?::int", number, turn));
          try (var statement = connection.createStatement(); ResultSet rows = statement.executeQuery("select " + turn)) {
            rows.next();
            Frame.same(turn, rows.getInt(1));
          }
        }
      });
    }
  }

  private static void typesAndNulls() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=2");
    UUID key = new UUID(1, 2);
    OffsetDateTime at = OffsetDateTime.of(2026, 2, 3, 4, 5, 6, 789_000, ZoneOffset.UTC);
    String words = "ünïcødé \\ ' \"";
    String sql = "select ?::text, ?::bool, ?::int8, ?::float8, ?::text, ?::bytea, ?::timestamptz, ?::uuid, ?::int4[]";
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (int turn = 0; turn < 5; turn++) {
        statement.setNull(1, Types.VARCHAR);
        statement.setBoolean(2, true);
        statement.setLong(3, 1L << 40);
        statement.setDouble(4, 1.5);
        statement.setString(5, words);
        statement.setBytes(6, new byte[] {0, -1, 0});
        statement.setObject(7, at);
        statement.setObject(8, key);
        Array list = connection.createArrayOf("int4", new Integer[] {1, null, 3});
        statement.setArray(9, list);
        try (ResultSet rows = statement.executeQuery()) {
          rows.next();
          Frame.same(true, rows.getString(1) == null && rows.wasNull());
          Frame.same(true, rows.getBoolean(2));
          Frame.same(1L << 40, rows.getLong(3));
          Frame.same(1.5, rows.getDouble(4));
          Frame.same(words, rows.getString(5));
          Frame.same("[0, -1, 0]", Arrays.toString(rows.getBytes(6)));
          Frame.same(at, rows.getObject(7, OffsetDateTime.class));
          Frame.same(key, rows.getObject(8));
          Frame.same("[1, null, 3]", Arrays.toString((Object[]) rows.getArray(9).getArray()));
        }
      }
    }
  }

  private static Map<String, String> row(PreparedStatement statement) throws SQLException {
    try (ResultSet rows = statement.executeQuery()) {
      Map<String, String> got = new java.util.TreeMap<>();
      rows.next();
      for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
        got.put(rows.getMetaData().getColumnName(i), rows.getString(i));
      }
      return got;
    }
  }

  /**
   * The driver keeps the columns of a named statement that it has seen. PostgreSQL's refusal (0A000) makes it prepare
   * anew by itself when no transaction is open; rows of another shape than it was told are misread.
   */
  private static void schemaChange() throws Exception {
    Connection other = Frame.connect();
    Frame.exec(other, "drop table if exists drv_pgjdbc_shape", "create table drv_pgjdbc_shape (id int, v int)",
        "insert into drv_pgjdbc_shape values (1, 10)");
    PreparedStatement[] statements = new PreparedStatement[8];
    for (int i = 0; i < statements.length; i++) {
      statements[i] = Frame.connect("prepareThreshold=1").prepareStatement("select * from drv_pgjdbc_shape where id = ?");
      statements[i].setInt(1, 1);
    }
    allSee(statements, Map.ofEntries(entry("id", "1"), entry("v", "10")));
    Frame.exec(other, "alter table drv_pgjdbc_shape add column extra text default 'more'");
    allSee(statements, Map.ofEntries(entry("id", "1"), entry("v", "10"), entry("extra", "more")));
    Frame.exec(other, "alter table drv_pgjdbc_shape alter column v type text using 'v' || v");
    allSee(statements, Map.ofEntries(entry("id", "1"), entry("v", "v10"), entry("extra", "more")));
    Frame.exec(other, "alter table drv_pgjdbc_shape drop column extra");
    allSee(statements, Map.ofEntries(entry("id", "1"), entry("v", "v10")));
    Frame.exec(other, "drop table drv_pgjdbc_shape");
    Frame.fails("42P01", () -> row(statements[0]));
  }

  private static void allSee(PreparedStatement[] statements, Map<String, String> expected) throws SQLException {
    for (PreparedStatement statement : statements) {
      for (int turn = 0; turn < 3; turn++) {
        Frame.same(expected, row(statement));
      }
    }
  }

  private static void schemaChangeInTransaction() throws Exception {
    Connection other = Frame.connect();
    Frame.exec(other, "drop table if exists drv_pgjdbc_shape2", "create table drv_pgjdbc_shape2 (id int, v int)",
        "insert into drv_pgjdbc_shape2 values (1, 10)");
    // By its own savepoint before each statement the driver heals even within a transaction.
    Connection careful = Frame.connect("prepareThreshold=1", "autosave=conservative");
    Connection plain = Frame.connect("prepareThreshold=1");
    String sql = "select * from drv_pgjdbc_shape2 where id = ?";
    PreparedStatement healing = careful.prepareStatement(sql);
    PreparedStatement failing = plain.prepareStatement(sql);
    for (PreparedStatement statement : new PreparedStatement[] {healing, failing}) {
      statement.setInt(1, 1);
      Frame.same(Map.of("id", "1", "v", "10"), row(statement));
      Frame.same(Map.of("id", "1", "v", "10"), row(statement));
    }
    Frame.exec(other, "alter table drv_pgjdbc_shape2 add column extra int default 7");
    careful.setAutoCommit(false);
    Frame.same(Map.of("id", "1", "v", "10", "extra", "7"), row(healing));
    careful.commit();
    plain.setAutoCommit(false);
    Frame.fails("0A000", () -> row(failing));
    Frame.fails("25P02", () -> Frame.value(plain, "select 1"));
    plain.rollback();
    Frame.same(Map.of("id", "1", "v", "10", "extra", "7"), row(failing));
    plain.commit();
    Frame.exec(other, "drop table drv_pgjdbc_shape2");
  }
}

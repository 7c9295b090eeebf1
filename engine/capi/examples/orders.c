/* Opens a store, changes it, reads it, copies it, and shows what errors look like. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wattle.h"

static WattleBytes bytes(const char *text) {
    WattleBytes bytes = {(const uint8_t *)text, strlen(text)};
    return bytes;
}

/* Ends the program if a call fails. */
static void check(WattleCode code, const char *call) {
    if (code != WATTLE_CODE_OK) {
        fprintf(stderr, "%s: code %d: %s\n", call, (int)code, wattle_error_message());
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

/* Ends the program unless a call fails as it must. */
static void expect(WattleCode code, WattleCode expected, const char *call) {
    if (code != expected) {
        fprintf(stderr, "%s: code %d instead of %d\n", call, (int)code, (int)expected);
        exit(1);
    }
}
#define EXPECT(call, code) expect((call), (code), #call)

struct shared {
    WattleEngine engine;
    WattleSession session;
    WattleTree tree;
};

/* A thread opens a session of its own; that of another thread is refused. */
static void *other_thread(void *argument) {
    struct shared *shared = argument;
    EXPECT(wattle_put(shared->session, shared->tree, bytes("k"), bytes("v")),
           WATTLE_CODE_WRONG_THREAD);
    WattleSession session;
    CHECK(wattle_session(shared->engine, &session));
    CHECK(wattle_put(session, shared->tree, bytes("o-3"), bytes("from a thread")));
    /* A transaction that a thread leaves open is rolled back at the end of the thread. */
    WattleTxn txn;
    CHECK(wattle_begin(shared->engine, NULL, &txn));
    CHECK(wattle_txn_put(txn, shared->tree, bytes("o-4"), bytes("never committed")));
    return NULL;
}

static void transactions(WattleEngine engine, WattleTree orders) {
    WattleTxn txn;
    CHECK(wattle_begin(engine, NULL, &txn));
    CHECK(wattle_txn_insert(txn, orders, bytes("o-1"), bytes("pending")));
    EXPECT(wattle_txn_insert(txn, orders, bytes("o-1"), bytes("again")), WATTLE_CODE_EXISTS);
    size_t savepoint;
    CHECK(wattle_savepoint(txn, &savepoint));
    CHECK(wattle_txn_put(txn, orders, bytes("o-9"), bytes("undone")));
    CHECK(wattle_rollback_to(txn, savepoint));
    EXPECT(wattle_rollback_to(txn, 7), WATTLE_CODE_INVALID_ARGUMENT);
    CHECK(wattle_txn_put(txn, orders, bytes("o-2"), bytes("paid")));
    CHECK(wattle_commit(txn));
    EXPECT(wattle_commit(txn), WATTLE_CODE_CLOSED_HANDLE);

    /* Of two transactions that change a record, the second gets a conflict. */
    WattleTxn first, second;
    CHECK(wattle_begin(engine, NULL, &first));
    CHECK(wattle_begin(engine, NULL, &second));
    CHECK(wattle_txn_update(first, orders, bytes("o-1"), bytes("paid")));
    EXPECT(wattle_txn_update(second, orders, bytes("o-1"), bytes("lost")), WATTLE_CODE_CONFLICT);
    printf("conflict: %s\n", wattle_error_message());
    CHECK(wattle_rollback(second));
    CHECK(wattle_commit(first));

    WattleTxnOptions options = {0};
    options.read_only = 1;
    CHECK(wattle_begin(engine, &options, &txn));
    EXPECT(wattle_txn_remove(txn, orders, bytes("o-1")), WATTLE_CODE_READ_ONLY);
    CHECK(wattle_rollback(txn));
}

static void values(WattleSession session, WattleTree orders) {
    uint8_t buffer[64];
    size_t length;
    CHECK(wattle_get(session, orders, bytes("o-1"), buffer, sizeof buffer, &length));
    printf("o-1 is %.*s\n", (int)length, (const char *)buffer);
    EXPECT(wattle_get(session, orders, bytes("o-1"), buffer, 2, &length),
           WATTLE_CODE_BUFFER_TOO_SMALL);
    EXPECT(wattle_get(session, orders, bytes("none"), buffer, sizeof buffer, &length),
           WATTLE_CODE_NOT_FOUND);
    EXPECT(wattle_get(session, orders, bytes("o-1"), NULL, 8, &length),
           WATTLE_CODE_INVALID_ARGUMENT);
    EXPECT(wattle_get(session, orders, bytes("o-1"), buffer, sizeof buffer, NULL),
           WATTLE_CODE_INVALID_ARGUMENT);
    EXPECT(wattle_update(session, orders, bytes("none"), bytes("x")), WATTLE_CODE_NOT_FOUND);
    EXPECT(wattle_remove(session, orders, bytes("none")), WATTLE_CODE_NOT_FOUND);
    WattleBytes too_long = {buffer, 2000};
    static uint8_t long_key[2000];
    too_long.data = long_key;
    EXPECT(wattle_put(session, orders, too_long, bytes("x")), WATTLE_CODE_INVALID_ARGUMENT);
}

/* Reads a range both ways; gives the number of its records. */
static int ranges(WattleSession session, WattleTree tree, const char *low, int descending) {
    WattleBytes bound = bytes(low), key, value;
    WattleRange range;
    int count = 0;
    CHECK(wattle_range(session, tree, &bound, NULL, descending, &range));
    WattleCode code;
    while ((code = wattle_range_next(range, &key, &value)) == WATTLE_CODE_OK) {
        if (count < 3) {
            printf("  %.*s = %.*s\n", (int)key.length, (const char *)key.data, (int)value.length,
                   (const char *)value.data);
        }
        count++;
    }
    expect(code, WATTLE_CODE_NOT_FOUND, "the end of a range");
    CHECK(wattle_range_close(range));
    EXPECT(wattle_range_next(range, &key, &value), WATTLE_CODE_CLOSED_HANDLE);
    return count;
}

static void many(WattleEngine engine, WattleSession session) {
    WattleTree tree;
    WattleTxn txn;
    char key[16];
    CHECK(wattle_tree(engine, "many", &tree));
    CHECK(wattle_begin(engine, NULL, &txn));
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%06d", i);
        CHECK(wattle_txn_put(txn, tree, bytes(key), bytes("value")));
    }
    WattleRange range;
    WattleBytes found, value;
    CHECK(wattle_txn_range(txn, tree, NULL, NULL, 0, &range));
    CHECK(wattle_range_next(range, &found, &value));
    CHECK(wattle_commit(txn));
    /* The range has lost its transaction: an error, once its chunk is read. */
    WattleCode code;
    while ((code = wattle_range_next(range, &found, &value)) == WATTLE_CODE_OK) {
    }
    expect(code, WATTLE_CODE_CLOSED_HANDLE, "a range without its transaction");
    CHECK(wattle_range_close(range));
    if (ranges(session, tree, "001000", 0) != 4000 || ranges(session, tree, "000990", 1) != 4010) {
        fprintf(stderr, "a range has a wrong number of records\n");
        exit(1);
    }
    CHECK(wattle_drop_tree(engine, tree));
    EXPECT(wattle_put(session, tree, bytes("k"), bytes("v")), WATTLE_CODE_CLOSED_HANDLE);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "use: %s STORE BACKUP\n", arguments[0]);
        return 2;
    }
    WattleOptions options = {0};
    options.pool_bytes = 8 << 20;
    options.log_bytes = 4 << 20;
    WattleEngine engine;
    CHECK(wattle_open(arguments[1], &options, &engine));
    EXPECT(wattle_open(NULL, &options, &engine), WATTLE_CODE_INVALID_ARGUMENT);
    struct shared shared = {engine, {0}, {0}};
    EXPECT(wattle_open_tree(engine, "orders", &shared.tree), WATTLE_CODE_NOT_FOUND);
    CHECK(wattle_tree(engine, "orders", &shared.tree));
    CHECK(wattle_session(engine, &shared.session));

    transactions(engine, shared.tree);
    values(shared.session, shared.tree);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, &shared) != 0) {
        return 1;
    }
    pthread_join(thread, NULL);
    if (ranges(shared.session, shared.tree, "o-1", 0) != 3) {
        fprintf(stderr, "the store does not have three orders\n");
        return 1;
    }
    many(engine, shared.session);

    char names[64];
    size_t length;
    CHECK(wattle_tree_names(engine, (uint8_t *)names, sizeof names, &length));
    CHECK(wattle_sync(engine));
    CHECK(wattle_checkpoint(engine));
    CHECK(wattle_backup(engine, arguments[2]));
    EXPECT(wattle_backup(engine, arguments[2]), WATTLE_CODE_CANNOT_OPEN);
    CHECK(wattle_compact(engine));
    WattleStats stats;
    CHECK(wattle_stats(engine, &stats, sizeof stats));
    printf("tree %s, commits %s\n", names, stats.commits > 2 ? "counted" : "missing");
    EXPECT(wattle_close(engine), WATTLE_CODE_IN_USE);
    CHECK(wattle_session_close(shared.session));
    EXPECT(wattle_session_close(shared.session), WATTLE_CODE_CLOSED_HANDLE);
    CHECK(wattle_tree_close(shared.tree));
    CHECK(wattle_close(engine));
    EXPECT(wattle_close(engine), WATTLE_CODE_CLOSED_HANDLE);
    EXPECT(wattle_sync(engine), WATTLE_CODE_CLOSED_HANDLE);

    /* The backup is a store. */
    CHECK(wattle_open(arguments[2], NULL, &engine));
    CHECK(wattle_open_tree(engine, "orders", &shared.tree));
    CHECK(wattle_session(engine, &shared.session));
    EXPECT(wattle_get(shared.session, shared.tree, bytes("o-2"), NULL, 0, &length),
           WATTLE_CODE_BUFFER_TOO_SMALL);
    CHECK(wattle_session_close(shared.session));
    CHECK(wattle_close(engine));
    printf("done\n");
    return 0;
}

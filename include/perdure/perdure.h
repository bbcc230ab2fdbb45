/* The C interface of Perdure: a replicated log, and ranges of bytes, durable on other machines; and
 * calls that are executed exactly once.
 *
 * The contracts are those of perdure/log.h, log_writer.h, region.h, mirror.h, rpc.h,
 * replicated_rpc.h, pool.h and messages.h; this page says what C needs besides. C11 and later.
 *
 * Every call that can fail returns perdure_code; PERDURE_OK is 0. What went wrong in words is in
 * perdure_last_error() of the same thread until its next failing call. Handles are not locked: one
 * caller at a time for each, different handles are independent. But any number of threads may use
 * one perdure_log_writer, perdure_mirror, perdure_rpc_server or perdure_replicated_rpc_server at
 * once, and close it when no other call of it runs. A thread must not be cancelled (pthread_cancel)
 * within a call: the program ends.
 */
#ifndef PERDURE_PERDURE_H
#define PERDURE_PERDURE_H

#include <perdure/version.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using): C has typedef only. */
/* What went wrong; perdure/result.h says for each what the caller should do. */
typedef enum perdure_code {
  PERDURE_OK = 0,
  PERDURE_INVALID_ARGUMENT,
  PERDURE_OUT_OF_RANGE,
  PERDURE_UNSUPPORTED,
  PERDURE_NOT_FOUND,
  PERDURE_ALREADY_EXISTS,
  PERDURE_PERMISSION_DENIED,
  PERDURE_BUSY,
  PERDURE_FENCED,
  PERDURE_DISCONNECTED,
  PERDURE_OUTCOME_UNKNOWN,
  PERDURE_TIMED_OUT,
  PERDURE_QUEUE_FULL,
  PERDURE_LOG_FULL,
  PERDURE_NO_SPACE,
  PERDURE_QUORUM_LOST,
  PERDURE_CORRUPT,
  PERDURE_VERSION_MISMATCH,
  PERDURE_PROTOCOL_ERROR,
  PERDURE_SYSTEM_ERROR
} perdure_code;

/* "ok", "log-full", "outcome-unknown" ... Never NULL. */
const char* perdure_code_name(perdure_code code);
/* The message of the last failing call of this thread; "" before the first. */
const char* perdure_last_error(void);

/* How far a record has come; each level includes the ones before it. */
typedef enum perdure_level {
  PERDURE_RECEIVED, /* a responder's NIC or transport has it */
  PERDURE_VISIBLE,  /* a load on a responder returns it */
  PERDURE_DURABLE,  /* it survives a power failure of one responder */
  PERDURE_COMMITTED /* it is durable on the quorum */
} perdure_level;

/* `size` is that of the struct as the caller knows it, so that fields can be added behind the
 * others. A field that is 0, false or NULL has its default:
 *   perdure_log_options options = {.size = sizeof options, .peers = peers, .peer_count = 3,
 *                                  .pool = "orders"};
 * Strings are read during the call only. */
typedef struct perdure_log_options {
  size_t size;
  const char* const* peers; /* "host:port" of each peer's control plane */
  size_t peer_count;
  const char* pool;      /* its name on every peer */
  size_t quorum;         /* 0: a majority, or what the log has */
  const char* transport; /* "tcp", "shm", "infiniband", "roce" or "iwarp"; default "auto" */
  const char* rnic;      /* by name or address; default: the first that fits and is up */
  const char* shape;     /* "singleton" or "compound"; default "planned" */
  const char* primary;   /* "write", "write_imm" or "send"; default "planned" */
  bool visible_only;     /* accept memory that does not survive a power failure: see LogOptions */
  bool existing_only;    /* do not create one */
  bool usual_costs;      /* do not time connections: methods by what they usually cost */
  bool take_over;        /* fence a writer that is still there, instead of PERDURE_BUSY */
  bool accept_loss;      /* open although committed records are damaged everywhere */
  bool never_spin;       /* waiting sleeps at once; else it polls for spin_us before */
  uint64_t record_bytes_max;
  size_t batches_in_flight;
  const char* writer_name;     /* shown to others; default: host and process */
  uint32_t replica_timeout_ms; /* a replica silent for this long is marked down */
  uint32_t reconnect_ms; /* try this long after the loss to bring it back; 0: only repair does */
  uint32_t spin_us;
  uint32_t reserved;           /* was no field once, so it is not looked at */
  uint32_t rnic_ack_timeout;   /* 6 to 22, see RnicOptions in rnic.h; default 17 */
  uint32_t rnic_traffic_class; /* 1 to 255; default: the system's own */
  bool partial;                /* of the log's peers some may be missing: to change its replicas */
  uint8_t reserved_too[7];     /* 0 */
} perdure_log_options;

typedef struct perdure_log perdure_log;

/* One record that was appended: where it begins and ends in the log, its number, and the opening of
 * the log that it belongs to. */
typedef struct perdure_ticket {
  uint64_t lsn;
  uint64_t end;
  uint64_t index;
  uint64_t writer;
} perdure_ticket;

/* `size` as in perdure_log_options: no more than that is written. Texts end with a zero; one that
 * is too long is cut off. */
typedef struct perdure_log_status {
  size_t size;
  uint32_t epoch;
  uint64_t head;      /* LSN of the oldest record that is kept */
  uint64_t tail;      /* where the next record will begin */
  uint64_t committed; /* everything before is durable on the quorum; visible_only: visible there */
  uint64_t next_index;
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
  uint64_t ring_bytes;
  char shape[16];           /* as in perdure_log_options */
  char accepted_loss[512];  /* what was given up when it was opened; "": nothing */
  char configuration[1024]; /* for people: generation, quorum, and every replica's pool */
} perdure_log_status;

/* *log is set on success only. See Log::open. */
perdure_code perdure_log_open(const perdure_log_options* options, perdure_log** log);
/* The same with all options in one string: "perdure://HOST:PORT[,HOST:PORT...]/POOL[?NAME=VALUE
 * [&NAME=VALUE...]]". See parse_log_options in log.h. */
perdure_code perdure_log_open_string(const char* connection, perdure_log** log);
/* The same with all options in a TOML file. See read_log_options in log.h. */
perdure_code perdure_log_open_file(const char* path, perdure_log** log);
/* Closes and frees; NULL is allowed. Records not yet waited for may or may not be durable. */
void perdure_log_close(perdure_log* log);
/* The same, and waits until every replica has everything and readers know what is committed.
 * PERDURE_TIMED_OUT: not all have; perdure_last_error() says how far each is. */
perdure_code perdure_log_close_within(perdure_log* log, uint32_t timeout_ms);

/* Copies the record and sends it on its way; wait for a level. *ticket is set on success only:
 * after an error nothing was appended. Mostly it returns at once. It blocks
 *   - while the staging memory is full, for as long as replicas answer: they may be slow. Once none
 *     has answered for twice replica_timeout_ms it is PERDURE_TIMED_OUT;
 *   - while the quorum is lost, for 1 s at most, and once a second, to ask who has taken over.
 * See Log::append, and perdure_log_append_would_block. */
perdure_code perdure_log_append(perdure_log* log, const void* record, size_t bytes,
                                perdure_ticket* ticket);
perdure_code perdure_log_wait(perdure_log* log, const perdure_ticket* ticket, perdure_level level,
                              uint32_t timeout_ms);
/* *yes: perdure_log_append of a record of so many bytes would block just now. Who must not block
 * polls meanwhile. */
perdure_code perdure_log_append_would_block(perdure_log* log, uint64_t bytes, bool* yes);
/* As perdure_log_append, for a record whose bytes lie in several places. */
typedef struct perdure_bytes {
  const void* bytes;
  size_t length;
} perdure_bytes;
perdure_code perdure_log_append_pieces(perdure_log* log, const perdure_bytes* pieces, size_t count,
                                       perdure_ticket* ticket);
/* *room for the next record, to be written in place, is good until the next call of this log;
 * perdure_log_append_claimed makes its first bytes the record. Both block as perdure_log_append. */
perdure_code perdure_log_claim(perdure_log* log, uint64_t bytes, void** room);
perdure_code perdure_log_append_claimed(perdure_log* log, uint64_t bytes, perdure_ticket* ticket);
/* *yes: as far as calls have learned by now. With visible_only never PERDURE_DURABLE or
 * PERDURE_COMMITTED: `committed` of the status says what is visible on the quorum. */
perdure_code perdure_log_reached(const perdure_log* log, const perdure_ticket* ticket,
                                 perdure_level level, bool* yes);
/* Makes progress without waiting. */
perdure_code perdure_log_poll(perdure_log* log);
/* The same, and goes on bringing back replicas that are due (reconnect_ms), for this long at most:
 * a call begins to connect, and a later one takes what came of it. */
perdure_code perdure_log_poll_within(perdure_log* log, uint32_t timeout_ms);
/* Forgets all records before `lsn`, the place of a committed record or the tail. */
perdure_code perdure_log_trim(perdure_log* log, uint64_t lsn);
/* Tries to bring back every replica that is down; *repaired says how many came back (may be NULL).
 * PERDURE_QUORUM_LOST if there are still fewer than the quorum. */
perdure_code perdure_log_repair(perdure_log* log, size_t* repaired);
perdure_code perdure_log_get_status(const perdure_log* log, perdure_log_status* status);

/* What bringing one replica back took. `size` as in perdure_log_status. Texts end with a zero; one
 * that is too long is cut off. */
typedef struct perdure_repair_report {
  size_t size;
  uint64_t copied_bytes; /* from another replica */
  bool repaired;
  char peer[263];
  char found[256]; /* what was wrong */
  char error[512]; /* why it is not repaired */
} perdure_repair_report;

/* As perdure_log_repair, for at most this long. *there says how many replicas were down; the first
 * `count` of them are reported. Each of `reports` has its size set. */
perdure_code perdure_log_repair_within(perdure_log* log, uint32_t timeout_ms,
                                       perdure_repair_report* reports, size_t count, size_t* there);
/* What opening had to repair, and what waiting and polling have brought back, since the last call:
 * *there of them. What is not among the first `count` is dropped. */
perdure_code perdure_log_take_repairs(perdure_log* log, perdure_repair_report* reports,
                                      size_t count, size_t* there);

/* One replica of a log. `size` and texts as in perdure_repair_report. */
typedef struct perdure_replica_status {
  size_t size;
  uint64_t durable_below;   /* everything before is durable there */
  uint64_t small_bytes_max; /* the largest batch that small_method carries */
  uint64_t replans;         /* how often its methods were changed since it was connected */
  uint64_t requests;        /* work requests since then */
  uint64_t messages;        /* of which messages */
  bool up;
  bool costs_measured; /* its methods were chosen by costs measured on this connection */
  char peer[263];
  char pool_uuid[37]; /* "" while its peer never answered */
  char small_method[65];
  char large_method[65];
  char profile[128];     /* in words: what survives a power failure there */
  char down_reason[520]; /* why it is not up */
  uint64_t posts;        /* times that the transport was handed work requests */
} perdure_replica_status;

/* *there says how many replicas there are; the first `count` of them are described. Each of
 * `replicas` has its size set. */
perdure_code perdure_log_get_replicas(const perdure_log* log, perdure_replica_status* replicas,
                                      size_t count, size_t* there);

/* Changes of the replicas: see Log::add_replica and those after it. `quorum` 0: a majority if it
 * was one, else as before. `which` is a peer or the UUID of a pool. */
perdure_code perdure_log_add_replica(perdure_log* log, const char* peer, size_t quorum);
perdure_code perdure_log_remove_replica(perdure_log* log, const char* which, size_t quorum);
perdure_code perdure_log_replace_replica(perdure_log* log, const char* which, const char* peer);
perdure_code perdure_log_change_quorum(perdure_log* log, size_t quorum);

/* How often something took how long; the classes end at perdure_time_class_end_ns(0), (1) ... */
#define PERDURE_TIME_CLASSES 23
typedef struct perdure_time_counts {
  uint64_t classes[PERDURE_TIME_CLASSES];
  uint64_t sum_ns;
} perdure_time_counts;

/* From append until calls learned of it, of a sample of the records. `size` as in
 * perdure_log_options. */
typedef struct perdure_log_times {
  size_t size;
  perdure_time_counts durable;   /* on at least one replica */
  perdure_time_counts committed; /* on the quorum */
} perdure_log_times;

/* The upper end of a class, included; UINT64_MAX of the last one and beyond. */
uint64_t perdure_time_class_end_ns(size_t index);
/* The upper end of the class of the value that `fraction` of all do not exceed; 0: there is none.
 */
uint64_t perdure_time_quantile_ns(const perdure_time_counts* counts, double fraction);
perdure_code perdure_log_get_times(const perdure_log* log, perdure_log_times* times);

/* --- one log, many threads ----------------------------------------------------------------------
 */

/* Any number of threads may use it at once. See log_writer.h. */
typedef struct perdure_log_writer perdure_log_writer;

/* What became of a record that was submitted; `ticket` is meaningful if `code` is PERDURE_OK. */
typedef struct perdure_finished {
  uint64_t tag;
  perdure_code code;
  perdure_ticket ticket;
} perdure_finished;

/* `own_thread`: a thread of its own brings records on, else the callers of commit do, and from the
 * first submit on a thread for what was submitted. */
perdure_code perdure_log_writer_open(const perdure_log_options* options, bool own_thread,
                                     perdure_log_writer** writer);

/* `size` and what is 0 as in perdure_log_options. */
typedef struct perdure_log_writer_options {
  size_t size;
  size_t records_max;  /* that are not finished, at a time; default 4096 */
  bool own_thread;     /* see above */
  uint8_t reserved[7]; /* 0 */
} perdure_log_writer_options;

/* `how` may be NULL. */
perdure_code perdure_log_writer_open_with(const perdure_log_options* options,
                                          const perdure_log_writer_options* how,
                                          perdure_log_writer** writer);
/* As perdure_log_open_string and perdure_log_open_file. */
perdure_code perdure_log_writer_open_string(const char* connection,
                                            const perdure_log_writer_options* how,
                                            perdure_log_writer** writer);
perdure_code perdure_log_writer_open_file(const char* path, const perdure_log_writer_options* how,
                                          perdure_log_writer** writer);
/* Frees it in any case, when no other call runs; NULL is allowed. */
perdure_code perdure_log_writer_close(perdure_log_writer* writer, uint32_t timeout_ms);
/* Appends the record and waits until it has reached the level. */
perdure_code perdure_log_writer_commit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       perdure_level level, uint32_t timeout_ms,
                                       perdure_ticket* ticket);
/* Copies the record and returns; perdure_log_writer_take says later what became of it: soon
 * after timeout_ms at the latest, without any call in between. */
perdure_code perdure_log_writer_submit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       uint64_t tag, perdure_level level, uint32_t timeout_ms);
/* The same for records whose bytes lie in several places. */
perdure_code perdure_log_writer_commit_pieces(perdure_log_writer* writer,
                                              const perdure_bytes* pieces, size_t count,
                                              perdure_level level, uint32_t timeout_ms,
                                              perdure_ticket* ticket);
perdure_code perdure_log_writer_submit_pieces(perdure_log_writer* writer,
                                              const perdure_bytes* pieces, size_t count,
                                              uint64_t tag, perdure_level level,
                                              uint32_t timeout_ms);
/* Called once, by a thread that brings records on. `finished` and `message` ("" if it succeeded)
 * are good during the call. It must not wait, nor call this writer. */
typedef void (*perdure_finished_callback)(const perdure_finished* finished, const char* message,
                                          void* context);
/* The same by a callback; if this fails, it is not called. */
perdure_code perdure_log_writer_submit_calling(perdure_log_writer* writer,
                                               const perdure_bytes* pieces, size_t count,
                                               uint64_t tag, perdure_level level,
                                               uint32_t timeout_ms,
                                               perdure_finished_callback callback, void* context);
/* Brings records on without waiting, if nobody else does; nobody has to call it. */
perdure_code perdure_log_writer_poll(perdure_log_writer* writer);
/* The same, and goes on bringing back replicas that are due (reconnect_ms), for this long at most:
 * see perdure_log_poll_within. */
perdure_code perdure_log_writer_poll_within(perdure_log_writer* writer, uint32_t timeout_ms);
/* Readable while perdure_log_writer_take has something; -1 for NULL. */
int perdure_log_writer_completion_fd(const perdure_log_writer* writer);
/* At most `count` of those that are finished, in that order; *taken says how many. */
perdure_code perdure_log_writer_take(perdure_log_writer* writer, perdure_finished* finished,
                                     size_t count, size_t* taken);
/* What went wrong with finished[index] of this thread's last perdure_log_writer_take, in words; ""
 * if nothing. Good until its next one. */
const char* perdure_finished_message(size_t index);
/* Writes a record into the room that it is given, and returns how many of its first bytes it is. */
typedef size_t (*perdure_record_writer)(void* room, size_t bytes, void* context);
/* As perdure_log_writer_commit, of a record of at most `bytes` bytes that `write` puts where it is
 * sent from. It is called at most once, by a thread that brings records on, maybe another one; it
 * must not wait, nor call this writer. */
perdure_code perdure_log_writer_commit_in_place(perdure_log_writer* writer, uint64_t bytes,
                                                perdure_record_writer write, void* context,
                                                perdure_level level, uint32_t timeout_ms,
                                                perdure_ticket* ticket);
/* Calls `use` with the writer's log while no record is brought on: to repair it, to change its
 * replicas, to open a reader of it. It is good during the call; perdure_log_close does nothing to
 * it, and perdure_log_close_within is PERDURE_INVALID_ARGUMENT. So is, of the writer, what would
 * wait for the call to end: to commit, to use its log (perdure_log_writer_trim, _get_status,
 * _get_times), to close it. */
typedef void (*perdure_log_use)(perdure_log* log, void* context);
perdure_code perdure_log_writer_with_log(perdure_log_writer* writer, perdure_log_use use,
                                         void* context);
perdure_code perdure_log_writer_trim(perdure_log_writer* writer, uint64_t lsn);
perdure_code perdure_log_writer_get_status(perdure_log_writer* writer, perdure_log_status* status);
perdure_code perdure_log_writer_get_times(perdure_log_writer* writer, perdure_log_times* times);

/* --- reading ------------------------------------------------------------------------------------
 */

/* `size` as in perdure_log_options. Strings are read during the call only. */
typedef struct perdure_reader_options {
  size_t size;
  const char* const* peers; /* replicas: the first that answers is read, another when it fails */
  size_t peer_count;
  const char* pool;
  const char* transport;     /* "tcp", "shm", "infiniband", "roce" or "iwarp"; default "auto" */
  const char* rnic;          /* by name or address; default: the first that fits and is up */
  uint64_t from_lsn;         /* 0: from the oldest record */
  uint64_t from_index;       /* records before this one are left out */
  bool uncommitted;          /* also what a new writer may replace; of one peer only */
  uint32_t timeout_ms;       /* a peer silent for this long is lost */
  uint32_t rnic_ack_timeout; /* as in perdure_log_options */
  uint32_t rnic_traffic_class;
} perdure_reader_options;

typedef struct perdure_reader perdure_reader;

/* `bytes` points into the reader and is valid until its next call. */
typedef struct perdure_record {
  uint64_t lsn;
  uint64_t index;
  uint32_t epoch;
  const void* bytes;
  size_t length;
} perdure_record;

/* Committed records, from any of the replicas. See LogReader. */
perdure_code perdure_reader_open(const perdure_reader_options* options, perdure_reader** reader);
/* As perdure_log_open_string and perdure_log_open_file, with the options of a reader: see
 * parse_reader_options in log.h. */
perdure_code perdure_reader_open_string(const char* connection, perdure_reader** reader);
perdure_code perdure_reader_open_file(const char* path, perdure_reader** reader);
/* A reader of an open log; of the options, which may be NULL, what says where it begins. */
perdure_code perdure_log_reader(const perdure_log* log, const perdure_reader_options* options,
                                perdure_reader** reader);
void perdure_reader_close(perdure_reader* reader);
/* *found is false at the end of the log; call again to follow a writer. */
perdure_code perdure_reader_next(perdure_reader* reader, perdure_record* record, bool* found);
/* Where the next record begins or will begin, and up to where all is known to be committed. Either
 * may be NULL. */
perdure_code perdure_reader_get_position(const perdure_reader* reader, uint64_t* position,
                                         uint64_t* committed);

/* Why perdure_reader_next found nothing. */
typedef enum perdure_log_end {
  PERDURE_END_CLEAN,        /* nothing was ever written there, or by an earlier lap of the ring */
  PERDURE_END_TORN,         /* a record begins there and its checksum fails */
  PERDURE_END_CHAIN_BROKEN, /* a whole record of another history */
  PERDURE_END_RING_FULL     /* the records fill the ring */
} perdure_log_end;

perdure_code perdure_reader_get_end(const perdure_reader* reader, perdure_log_end* end);
/* The peer that is read; "" while none can be. Good until the reader's next call. */
const char* perdure_reader_peer(perdure_reader* reader);

/* --- regions ---------------------------------------------------------------------------------- */

/* `size` is that of the struct as the caller knows it, so that fields can be added behind the
 * others. A field that is 0, false or NULL has its default:
 *   perdure_region_options options = {.size = sizeof options, .peers = peers, .peer_count = 1,
 *                                     .pool = "index"};
 * Strings are read during the call only. */
typedef struct perdure_region_options {
  size_t size;
  const char* const* peers; /* "host:port" of each peer's control plane: all of the region's */
  size_t peer_count;
  const char* pool;      /* its name on every peer */
  size_t quorum;         /* 0: all peers, or what the region has */
  const char* transport; /* "tcp", "shm", "infiniband", "roce" or "iwarp"; default "auto" */
  const char* rnic;      /* by name or address; default: the first that fits and is up */
  const char* primary;   /* "write", "write_imm" or "send"; default "planned" */
  bool visible_only;     /* accept memory that does not survive a power failure */
  bool existing_only;    /* do not create one */
  bool usual_costs;      /* do not time connections */
  bool take_over;        /* fence a writer that is still there, instead of PERDURE_BUSY */
  uint64_t staging_bytes;
  const char* writer_name;   /* shown to others; default: host and process */
  uint32_t peer_timeout_ms;  /* a peer silent for this long is down */
  uint32_t reserved;         /* was no field once, so it is not looked at */
  uint32_t spin_us;          /* how long waiting polls before it sleeps; default 200 */
  uint32_t rnic_ack_timeout; /* as in perdure_log_options */
  uint32_t rnic_traffic_class;
  bool never_spin;         /* waiting sleeps at once */
  uint8_t reserved_too[3]; /* 0 */
  uint32_t reconnect_ms;   /* bring back peers that are down, first after so long; 0: none */
  uint32_t reserved_last;  /* 0 */
} perdure_region_options;

typedef struct perdure_region perdure_region;

/* One range of an update. The ranges of an epoch stand together, and epochs count upwards. */
typedef struct perdure_range {
  uint64_t at; /* from the start of the region */
  const void* bytes;
  size_t length;
  uint32_t epoch;
} perdure_range;

/* `size` as in perdure_region_options: no more than that is written. */
typedef struct perdure_region_status {
  size_t size;
  uint64_t bytes;
  uint64_t begun;     /* the last update */
  uint64_t committed; /* it and all before it are */
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
  size_t replicas_whole; /* that have everything that was ever reported */
  bool may_differ;
  uint8_t reserved[7];   /* 0 */
  uint32_t epoch;        /* of this writer */
  uint32_t reserved_too; /* 0 */
} perdure_region_status;

/* One replica of a region. `size` and texts as in perdure_repair_report. */
typedef struct perdure_region_replica_status {
  size_t size;
  uint64_t resolved; /* the last update that has reached the level there */
  uint64_t small_bytes_max;
  bool up;
  bool whole; /* up to `resolved` it has everything that was ever reported */
  char peer[263];
  char pool_uuid[37];
  char small_method[65];
  char large_method[65];
  char profile[128];
  char down_reason[520];
  uint64_t missed_bytes; /* that are still to be copied to it */
  bool catching_up;      /* it came back, and does not have everything yet */
  bool mixed;            /* see RegionReplicaStatus */
  uint8_t reserved[6];   /* 0 */
  uint64_t coalesced;    /* updates that went there together with others */
} perdure_region_replica_status;

/* How long calls took. `size` as in perdure_log_options. */
typedef struct perdure_region_times {
  size_t size;
  perdure_time_counts durable;   /* from write until calls learned of it: on one replica */
  perdure_time_counts committed; /* on the quorum */
  perdure_time_counts reads;
  perdure_time_counts atomics;
} perdure_region_times;

/* One update that was begun: its number, from 1, and the opening of the region that it belongs to.
 */
typedef struct perdure_region_ticket {
  uint64_t number;
  uint64_t writer;
} perdure_region_ticket;

/* *region is set on success only. See Region::open. */
perdure_code perdure_region_open(const perdure_region_options* options, perdure_region** region);
/* As perdure_log_open_string and perdure_log_open_file, with the options of region.h. */
perdure_code perdure_region_open_string(const char* connection, perdure_region** region);
perdure_code perdure_region_open_file(const char* path, perdure_region** region);
/* Frees it in any case; NULL is allowed. PERDURE_OK: every replica that is up has everything and
 * says so. Else the replicas may differ. */
perdure_code perdure_region_close(perdure_region* region, uint32_t timeout_ms);

/* Copies the bytes and begins the update; wait for a level. *ticket is set on success only. */
perdure_code perdure_region_write(perdure_region* region, const perdure_range* ranges, size_t count,
                                  perdure_region_ticket* ticket);
/* The update, and all before it. PERDURE_VISIBLE, PERDURE_DURABLE or PERDURE_COMMITTED. */
perdure_code perdure_region_wait(perdure_region* region, const perdure_region_ticket* ticket,
                                 perdure_level level, uint32_t timeout_ms);
/* Everything that was begun. */
perdure_code perdure_region_flush(perdure_region* region, perdure_level level, uint32_t timeout_ms);
/* *yes: as far as calls have learned by now. */
perdure_code perdure_region_reached(const perdure_region* region,
                                    const perdure_region_ticket* ticket, perdure_level level,
                                    bool* yes);
/* Makes progress without waiting. */
perdure_code perdure_region_poll(perdure_region* region);
/* The same, and brings back peers that are due (reconnect_ms) and, when the quorum is lost, asks
 * those that are down whether a newer writer has the region (PERDURE_FENCED); it may take this
 * long. Who never calls it learns that by what it writes or waits for next. */
perdure_code perdure_region_poll_within(perdure_region* region, uint32_t timeout_ms);

/* 8-byte atomics; *before is set on success only. Of several peers PERDURE_UNSUPPORTED where
 * primary is "write" or "write_imm", which may tear the word. */
perdure_code perdure_region_fetch_add(perdure_region* region, uint64_t at, uint64_t addend,
                                      uint64_t* before);
perdure_code perdure_region_compare_swap(perdure_region* region, uint64_t at, uint64_t expected,
                                         uint64_t value, uint64_t* before);
perdure_code perdure_region_store(perdure_region* region, uint64_t at, uint64_t value,
                                  uint64_t* before);

/* Reads from the replica of that peer; PERDURE_ANY_REPLICA: from one that is up. */
#define PERDURE_ANY_REPLICA SIZE_MAX
perdure_code perdure_region_read(perdure_region* region, uint64_t at, void* into, size_t length,
                                 size_t replica);

/* *fd becomes readable when an answer may have come, after *armed was true. See region.h. */
perdure_code perdure_region_completion_fd(perdure_region* region, int* fd);
perdure_code perdure_region_arm(perdure_region* region, bool* armed);

/* The caller has made all replicas that are up hold the same. */
perdure_code perdure_region_note_equal(perdure_region* region);
perdure_code perdure_region_get_status(const perdure_region* region, perdure_region_status* status);
/* As perdure_log_get_replicas. */
perdure_code perdure_region_get_replicas(const perdure_region* region,
                                         perdure_region_replica_status* replicas, size_t count,
                                         size_t* there);
perdure_code perdure_region_get_times(const perdure_region* region, perdure_region_times* times);

/* --- mirrors ---------------------------------------------------------------------------------- */

/* Memory of this program whose ranges are durable on other machines when it says so: mirror.h. A
 * mirror may be used by any number of threads. `size` and defaults as in perdure_region_options:
 *   perdure_mirror_options options = {.size = sizeof options, .peers = peers, .peer_count = 2,
 *                                     .pool = "tree", .file = "/data/tree"};
 */
typedef struct perdure_mirror_options {
  size_t size;
  const char* const* peers; /* "host:port" of each peer's control plane: all of the mirror's */
  size_t peer_count;
  const char* pool;      /* its name on every peer, 12 KiB larger than the memory at least */
  size_t quorum;         /* 0: all peers, or what the mirror has */
  const char* transport; /* as in perdure_region_options, and the next two */
  const char* rnic;
  const char* primary;
  const char* file;      /* the memory: a file or a DAX device, mapped and locked */
  uint64_t create_bytes; /* make `file` new, with so many zeros; 0: it exists */
  void* memory;          /* or, without `file`, the program's own; it outlives the mirror */
  size_t memory_bytes;
  const char*
      memory_domain;    /* of `memory`: "none" (default), "page" (with memory_file), "dmp", ... */
  const char* start;    /* "new", "local" (default) or "replicas": whose bytes count */
  bool usual_costs;     /* do not time connections */
  bool take_over;       /* fence a writer that is still there, instead of PERDURE_BUSY */
  bool without_missing; /* those that are away have nothing newer: the operator knows that */
  bool never_spin;      /* waiting sleeps at once */
  bool never_reconnect; /* a lost replica stays away */
  bool only_copies;     /* no update is begun, and the memory that counted before still does */
  uint8_t reserved[2];  /* 0 */
  const char* writer_name; /* shown to others; default: host and process */
  uint64_t staging_bytes;
  uint32_t peer_timeout_ms; /* a peer silent for this long is lost */
  uint32_t reconnect_ms;    /* when a lost replica is first tried again */
  uint32_t spin_us;         /* how long waiting polls before it sleeps; default 200 */
  uint32_t rnic_ack_timeout;
  uint32_t rnic_traffic_class;
  uint32_t reserved_last;  /* 0 */
  const char* memory_file; /* the file that `memory` is mapped from: see MirrorMemory::bytes_of */
} perdure_mirror_options;

typedef struct perdure_mirror perdure_mirror;

/* A part of the memory. The ranges of an epoch stand together, and epochs count upwards. */
typedef struct perdure_mirror_range {
  uint64_t at;
  uint64_t length;
  uint32_t epoch;
} perdure_mirror_range;

/* `size` as in perdure_region_status. */
typedef struct perdure_mirror_status {
  size_t size;
  uint64_t bytes;
  uint64_t begun;     /* the last ticket */
  uint64_t committed; /* it and all before it are durable on the quorum */
  size_t quorum;
  size_t replicas;
  size_t in_sync; /* replicas that have everything */
  uint32_t epoch; /* of this writer */
  uint32_t generation;
} perdure_mirror_status;

typedef enum perdure_mirror_state {
  PERDURE_MIRROR_LOST,      /* no connection: pages that change are noted */
  PERDURE_MIRROR_COMPARING, /* its pages are compared with the local ones */
  PERDURE_MIRROR_WAITING,   /* for its turn to be copied to */
  PERDURE_MIRROR_COPYING,   /* incomplete: pages are copied to it */
  PERDURE_MIRROR_IN_SYNC    /* it has everything */
} perdure_mirror_state;

/* One replica of a mirror. `size` and texts as in perdure_repair_report. */
typedef struct perdure_mirror_replica_status {
  size_t size;
  uint64_t compared;
  uint64_t dirty_bytes;  /* still to be copied */
  uint64_t copied_bytes; /* since the mirror was opened */
  uint64_t returned;     /* how often it came back */
  perdure_mirror_state state;
  char peer[263];
  char pool_uuid[37];
  char small_method[65];
  char large_method[65];
  char small_family[17]; /* "ARRM" or "GPRRM" */
  char large_family[17];
  char profile[128];
  char down_reason[520];
  uint8_t reserved[4]; /* 0 */
} perdure_mirror_replica_status;

/* *mirror is set on success only. See Mirror::open. */
perdure_code perdure_mirror_open(const perdure_mirror_options* options, perdure_mirror** mirror);
/* As perdure_log_open_string and perdure_log_open_file, with the options of mirror.h. `memory` says
 * what is mirrored: of its fields only those that are about the memory may be set. */
perdure_code perdure_mirror_open_string(const char* connection,
                                        const perdure_mirror_options* memory,
                                        perdure_mirror** mirror);
perdure_code perdure_mirror_open_file(const char* path, const perdure_mirror_options* memory,
                                      perdure_mirror** mirror);
/* Frees it in any case; NULL is allowed. PERDURE_OK: every replica in sync has everything and says
 * so. */
perdure_code perdure_mirror_close(perdure_mirror* mirror, uint32_t timeout_ms);
/* Where the mirrored bytes are, and how many; NULL without a mirror. */
void* perdure_mirror_memory(const perdure_mirror* mirror, size_t* bytes);

/* Makes a range durable here and on the quorum. PERDURE_OUTCOME_UNKNOWN: it was begun, and may be
 * durable or not; perdure_mirror_drain waits for it, and to persist it again is safe. All other
 * codes: nothing was begun. */
perdure_code perdure_mirror_persist(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                    uint32_t timeout_ms);
/* The same, and on to the medium itself: see Mirror::deep_persist. */
perdure_code perdure_mirror_deep_persist(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                         uint32_t timeout_ms);
/* Begins it; *ticket, from 1, is set on success only. Short ranges that are flushed one after
 * another share a ticket, and go together when something is waited for. */
perdure_code perdure_mirror_flush(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                  uint64_t* ticket);
/* Until that one is durable, or all that was begun. A thread that waits for its own last ticket
 * waits for nothing that others begin later. PERDURE_TIMED_OUT and PERDURE_QUORUM_LOST: not by now,
 * wait again. PERDURE_OUTCOME_UNKNOWN: another writer has taken over, or the local medium refused;
 * the next call that begins something says which. */
perdure_code perdure_mirror_wait(perdure_mirror* mirror, uint64_t ticket, uint32_t timeout_ms);
perdure_code perdure_mirror_drain(perdure_mirror* mirror, uint32_t timeout_ms);
/* *yes: as far as calls have learned by now. */
perdure_code perdure_mirror_reached(const perdure_mirror* mirror, uint64_t ticket, bool* yes);
/* Epochs in order, in one message where they fit: nothing of one is on a replica before all of the
 * earlier ones is durable there. */
perdure_code perdure_mirror_flush_ordered(perdure_mirror* mirror,
                                          const perdure_mirror_range* ranges, size_t count,
                                          uint64_t* ticket);
/* Stores the bytes and flushes them, epoch after epoch, here and there. They are copied. Epochs may
 * store to the same bytes, except where one of the two ranges has 8 KiB or more. */
perdure_code perdure_mirror_write(perdure_mirror* mirror, const perdure_range* ranges, size_t count,
                                  uint64_t* ticket);
/* Stores a word at a multiple of 8 and makes it durable, the old one or the new one everywhere.
 * Codes as of perdure_mirror_persist. */
perdure_code perdure_mirror_write_atomic(perdure_mirror* mirror, uint64_t at, uint64_t value,
                                         uint32_t timeout_ms);
/* Reads from the replica of that peer; PERDURE_ANY_REPLICA: from one that is in sync. */
perdure_code perdure_mirror_read(perdure_mirror* mirror, uint64_t at, void* into, size_t length,
                                 size_t replica);
/* Until every replica has everything. */
perdure_code perdure_mirror_wait_in_sync(perdure_mirror* mirror, uint32_t timeout_ms);
perdure_code perdure_mirror_get_status(const perdure_mirror* mirror, perdure_mirror_status* status);
/* As perdure_log_get_replicas. */
perdure_code perdure_mirror_get_replicas(const perdure_mirror* mirror,
                                         perdure_mirror_replica_status* replicas, size_t count,
                                         size_t* there);
/* How long updates took until it was learned that they were durable on the quorum, of a sample; and
 * every read. `size` as in perdure_log_options. */
typedef struct perdure_mirror_times {
  size_t size;
  perdure_time_counts durable;
  perdure_time_counts reads;
} perdure_mirror_times;
perdure_code perdure_mirror_get_times(const perdure_mirror* mirror, perdure_mirror_times* times);

/* --- pools ------------------------------------------------------------------------------------ */

typedef enum perdure_pool_state {
  PERDURE_POOL_OPEN,
  PERDURE_POOL_CLOSED,
  PERDURE_POOL_UNAVAILABLE
} perdure_pool_state;

/* `size` as in perdure_log_status. Texts end with a zero; one that is too long is cut off. */
typedef struct perdure_pool_description {
  size_t size;
  char name[65];
  char uuid[37];
  perdure_pool_state state;
  uint64_t bytes;
  uint32_t epoch;      /* of the last writer; 0: there was none */
  bool writer_present; /* it holds a session now */
  char writer_name[65];
  char profile[128]; /* in words: what survives a power failure there */
  char reason[512];  /* why it is not open */
  char reserved[2];
} perdure_pool_description;

/* See pool.h. `peer` is "host:port" of a control plane; a time-out of 0 is the usual one.
 * `description` may be NULL. `small`: also where no log fits in. */
perdure_code perdure_pool_create(const char* peer, const char* name, uint64_t bytes, bool small,
                                 uint32_t timeout_ms, perdure_pool_description* description);
/* All that may be said of a pool that is to be made. `size` as in perdure_log_options. */
typedef struct perdure_pool_create_options {
  size_t size;
  const char* peer;
  const char* name;
  uint64_t bytes;
  const char* required_domain; /* "page", "dmp", "mhp" or "wsp": the weakest; default: any */
  const char* receive_buffers; /* "dram" or "pm"; default: as the peer is configured */
  uint32_t timeout_ms;
  bool small;
  uint8_t reserved[3]; /* 0 */
} perdure_pool_create_options;

/* As perdure_pool_create. PERDURE_UNSUPPORTED: less than the required domain survives there, or it
 * has no such receive buffers; nothing was made. */
perdure_code perdure_pool_create_with(const perdure_pool_create_options* options,
                                      perdure_pool_description* description);
perdure_code perdure_pool_describe(const char* peer, const char* name, uint32_t timeout_ms,
                                   perdure_pool_description* description);
/* *there says how many pools there are; the first `count` of them are described. Each of `pools`
 * has its size set. */
perdure_code perdure_pool_list(const char* peer, uint32_t timeout_ms,
                               perdure_pool_description* pools, size_t count, size_t* there);
/* Ends the pool's sessions and closes it, until it is opened again. */
perdure_code perdure_pool_close(const char* peer, const char* name, uint32_t timeout_ms);
perdure_code perdure_pool_open(const char* peer, const char* name, uint32_t timeout_ms,
                               perdure_pool_description* description);
/* Destroys the pool, and all that is in it, if it has this UUID. */
perdure_code perdure_pool_delete(const char* peer, const char* name, const char* uuid,
                                 uint32_t timeout_ms);

/* --- durable RPC ------------------------------------------------------------------------------ */

/* The handlers' bytes of a server's pool; valid during the handler that gets it. */
typedef struct perdure_rpc_data perdure_rpc_data;

uint64_t perdure_rpc_data_bytes(const perdure_rpc_data* data);
/* What is there, with this call's own writes. */
perdure_code perdure_rpc_data_read(const perdure_rpc_data* data, uint64_t at, void* into,
                                   size_t length);
/* Refused in a query. After an error the call is refused, whatever its handler returns. */
perdure_code perdure_rpc_data_write(perdure_rpc_data* data, uint64_t at, const void* bytes,
                                    size_t length);

/* One call as its handler sees it. `size` is that of the library's struct. */
typedef struct perdure_rpc_request {
  size_t size;
  const char* client;
  uint64_t client_id;
  uint64_t sequence; /* with client_id and generation: the idempotency key of this call */
  uint64_t order_key;
  const void* payload;
  size_t payload_bytes;
  uint32_t operation;
  uint32_t generation; /* grows with each opening of the client's name */
} perdure_rpc_request;

/* Executes one call: see RpcHandler. Writes up to `room` bytes of reply and says how many; *bytes
 * is 0 before. A code that is not PERDURE_OK refuses the call. It must not throw or jump out. */
typedef perdure_code (*perdure_rpc_handler)(const perdure_rpc_request* request,
                                            perdure_rpc_data* data, void* reply, size_t room,
                                            size_t* bytes, void* context);
/* Answers a query: see RpcQueryHandler. */
typedef perdure_code (*perdure_rpc_query_handler)(const void* payload, size_t payload_bytes,
                                                  const perdure_rpc_data* data, void* reply,
                                                  size_t room, size_t* bytes, void* context);

/* What handles an operator: its calls, its queries, or both. */
typedef struct perdure_rpc_operation {
  uint32_t operation;
  uint32_t reserved; /* 0 */
  perdure_rpc_handler handler;
  perdure_rpc_query_handler query;
  void* context;
} perdure_rpc_operation;

/* `size` and defaults as in perdure_log_options; the fields are those of RpcServerOptions. */
typedef struct perdure_rpc_server_options {
  size_t size;
  const char* pool; /* file of the pool */
  const perdure_rpc_operation* operations;
  size_t operation_count;
  const char* listen;      /* control plane, "host:port"; default 127.0.0.1:7470 */
  const char* data_listen; /* default 127.0.0.1:7471 */
  uint64_t data_bytes;
  uint64_t ring_bytes;
  uint64_t transaction_bytes;
  uint64_t answer_bytes_max;
  uint32_t clients_max;
  uint32_t replies;
  uint32_t reply_bytes_max;
  uint32_t attempts_max;
  uint32_t lease_ms; /* 0: clients do not expire */
  uint32_t spin_us;
  bool never_spin;
  bool refuse_failed;
  bool allow_remote; /* both planes where other machines reach them; see RpcServerOptions */
  bool quick_handlers;
  uint8_t slow_from_percent;
  uint8_t handler_threads;
  uint8_t reserved[2];           /* 0 */
  const char* declared;          /* "none", "page", "dmp", "mhp", "wsp"; default: the evidence */
  const char* receive_buffers;   /* "dram" or "pm"; default "dram" */
  const char* const* transports; /* words as in perdure_log_options; default "tcp", "shm" */
  size_t transport_count;
  const char* rnic;
  uint32_t rnic_ack_timeout;
  uint32_t rnic_traffic_class;
  uint32_t application;
  uint32_t reserved_too; /* 0 */
} perdure_rpc_server_options;

typedef struct perdure_rpc_server perdure_rpc_server;

/* `size` as in perdure_log_status: no more than that is written. */
typedef struct perdure_rpc_server_status {
  size_t size;
  uint64_t applied;
  uint64_t refused;
  uint64_t unknown;
  uint64_t set_aside;
  uint64_t dropped;
  uint64_t transactions;
  uint64_t queries;
  uint64_t expired;
  bool failed; /* the medium refused: nothing is executed any more */
  char failure[511];
  uint64_t cancelled;
  uint64_t refused_failed;
} perdure_rpc_server_status;

/* One client of a server. `size` and texts as in perdure_pool_description. */
typedef struct perdure_rpc_client_place {
  size_t size;
  uint64_t client_id;
  uint64_t applied;
  uint64_t waiting;
  uint32_t attempts;
  uint32_t set_aside;
  uint32_t dropped;
  bool held; /* its next call is set aside */
  char name[65];
  uint8_t reserved[2]; /* 0 */
} perdure_rpc_client_place;

/* A call, or a query, that is in its handler. `size` and texts as in perdure_pool_description. */
typedef struct perdure_rpc_executing {
  size_t size;
  uint64_t client_id;
  uint64_t sequence;  /* 0: a query, which has none */
  uint64_t lasted_ns; /* so far */
  uint32_t operation;
  char name[65];       /* of its client */
  uint8_t reserved[3]; /* 0 */
} perdure_rpc_executing;

/* *server is set on success only. See RpcServer::open. Any number of threads may use it at once,
 * and threads of the server call the handlers. */
perdure_code perdure_rpc_server_open(const perdure_rpc_server_options* options,
                                     perdure_rpc_server** server);
/* NULL is harmless. Not in one of its handlers, for which it waits. */
void perdure_rpc_server_close(perdure_rpc_server* server);
/* Executes what is durable, and serves nobody: see RpcServer::replay. `status` may be NULL. */
perdure_code perdure_rpc_server_replay(const perdure_rpc_server_options* options,
                                       perdure_rpc_server_status* status);
/* Of the control plane, with the port that was chosen. Good until the server is closed. */
const char* perdure_rpc_server_address(const perdure_rpc_server* server);
perdure_code perdure_rpc_server_get_status(const perdure_rpc_server* server,
                                           perdure_rpc_server_status* status);
/* *there says how many clients there are; the first `count` are described. Each has its size. */
perdure_code perdure_rpc_server_get_clients(const perdure_rpc_server* server,
                                            perdure_rpc_client_place* clients, size_t count,
                                            size_t* there);
/* The same of what is in its handler now. */
perdure_code perdure_rpc_server_get_executing(const perdure_rpc_server* server,
                                              perdure_rpc_executing* executing, size_t count,
                                              size_t* there);
/* An operator's decision about a call that is set aside: see RpcServer::retry and drop. */
perdure_code perdure_rpc_server_retry(perdure_rpc_server* server, const char* client,
                                      uint64_t sequence);
perdure_code perdure_rpc_server_drop(perdure_rpc_server* server, const char* client,
                                     uint64_t sequence);

/* How far a call has come. */
typedef enum perdure_rpc_level {
  PERDURE_RPC_DURABLE, /* it will be executed exactly once, whatever crashes */
  PERDURE_RPC_APPLIED  /* it was, and what it did is durable */
} perdure_rpc_level;

/* `size` and defaults as in perdure_log_options; the fields are those of RpcClientOptions. */
typedef struct perdure_rpc_client_options {
  size_t size;
  const char* server; /* "host:port" of its control plane */
  const char* name;   /* who it is */
  const char* transport;
  const char* primary;
  const char* rnic;
  uint32_t rnic_ack_timeout;
  uint32_t rnic_traffic_class;
  uint32_t server_timeout_ms;
  uint32_t reconnect_ms;
  uint32_t spin_us;
  bool never_spin;
  bool never_reconnect;
  bool usual_costs;
  uint8_t reserved; /* 0 */
} perdure_rpc_client_options;

typedef struct perdure_rpc_client perdure_rpc_client;

typedef struct perdure_rpc_handle {
  uint64_t sequence;
  uint64_t client_id;
} perdure_rpc_handle;

/* `size` as in perdure_log_status. */
typedef struct perdure_rpc_client_status {
  size_t size;
  uint64_t client_id;
  uint64_t earlier_durable;
  uint64_t begun;
  uint64_t durable;
  uint64_t applied;
  uint64_t resent;
  uint64_t connections;
  bool up;
  char down_reason[511];
  uint64_t cancelled;
  uint64_t slowed;
  uint64_t slowed_ns; /* in all */
  char small_method[65];
  char large_method[65];
  uint8_t reserved[6]; /* 0 */
} perdure_rpc_client_status;

/* How a call ended. `size` as in perdure_log_status. */
typedef struct perdure_rpc_outcome {
  size_t size;
  perdure_code refused; /* PERDURE_OK, or why it was not executed */
  bool dropped;         /* not by its handler, which failed each time */
  bool cancelled;       /* not by its handler, but before it was sent */
  uint8_t reserved[2];  /* 0 */
} perdure_rpc_outcome;

/* *client is set on success only. See RpcClient::open. */
perdure_code perdure_rpc_client_open(const perdure_rpc_client_options* options,
                                     perdure_rpc_client** client);
/* As perdure_log_open_string and perdure_log_open_file, with the options of a client: see
 * parse_rpc_client_options in rpc.h. */
perdure_code perdure_rpc_client_open_string(const char* connection, perdure_rpc_client** client);
perdure_code perdure_rpc_client_open_file(const char* path, perdure_rpc_client** client);
/* NULL is harmless. */
void perdure_rpc_client_close(perdure_rpc_client* client);
/* Begins a call; the payload is copied. `order_key` 0: none. See RpcClient::call. */
perdure_code perdure_rpc_client_call(perdure_rpc_client* client, uint32_t operation,
                                     const void* payload, size_t bytes, uint64_t order_key,
                                     perdure_rpc_handle* handle);
/* Waits until the call, and all before it, are at `level`: see RpcClient::wait. */
perdure_code perdure_rpc_client_wait(perdure_rpc_client* client, const perdure_rpc_handle* handle,
                                     perdure_rpc_level level, uint32_t timeout_ms);
/* Waits until it is applied. *bytes is the size of the reply, of which up to `room` bytes are
 * copied. */
perdure_code perdure_rpc_client_reply(perdure_rpc_client* client, const perdure_rpc_handle* handle,
                                      uint32_t timeout_ms, perdure_rpc_outcome* outcome,
                                      void* reply, size_t room, size_t* bytes);
/* Before it was sent: see RpcClient::cancel. */
perdure_code perdure_rpc_client_cancel(perdure_rpc_client* client,
                                       const perdure_rpc_handle* handle);
/* See RpcClient::query; `own_calls`: it sees all that were begun. *bytes as in reply. */
perdure_code perdure_rpc_client_query(perdure_rpc_client* client, uint32_t operation,
                                      const void* payload, size_t payload_bytes, bool own_calls,
                                      uint32_t timeout_ms, void* answer, size_t room,
                                      size_t* bytes);
perdure_code perdure_rpc_client_poll(perdure_rpc_client* client);
/* 0 for NULL. */
uint64_t perdure_rpc_client_payload_bytes_max(const perdure_rpc_client* client);
/* A call of this client by its sequence, an earlier process's too. */
perdure_code perdure_rpc_client_handle_of(const perdure_rpc_client* client, uint64_t sequence,
                                          perdure_rpc_handle* handle);
perdure_code perdure_rpc_client_get_status(const perdure_rpc_client* client,
                                           perdure_rpc_client_status* status);
/* How long calls took until the client learned that they were durable and applied, of a sample; and
 * every query that was answered. `size` as in perdure_log_options. */
typedef struct perdure_rpc_client_times {
  size_t size;
  perdure_time_counts durable;
  perdure_time_counts applied;
  perdure_time_counts queries;
} perdure_rpc_client_times;
perdure_code perdure_rpc_client_get_times(const perdure_rpc_client* client,
                                          perdure_rpc_client_times* times);

/* --- durable RPC on k servers ----------------------------------------------------------------- */

/* Calls that outlive the loss of machines: see replicated_rpc.h. Handlers are those of
 * perdure_rpc_server; their `query` must be NULL. */
typedef struct perdure_replicated_rpc_server perdure_replicated_rpc_server;

/* `size` and defaults as in perdure_log_options; the fields are those of ReplicatedRpcGroup and
 * ReplicatedRpcServerOptions. */
typedef struct perdure_replicated_rpc_server_options {
  size_t size;
  const char* const* peers; /* "host:port" of each peer's control plane */
  size_t peer_count;
  const char* service;
  const perdure_rpc_operation* operations;
  size_t operation_count;
  size_t quorum; /* 0: a majority, or what the service's logs have */
  const char* transport;
  const char* rnic;
  uint64_t data_bytes;
  uint64_t transaction_bytes;
  uint32_t rnic_ack_timeout;
  uint32_t rnic_traffic_class;
  uint32_t peer_timeout_ms;
  uint32_t reconnect_ms;
  uint32_t clients_max;
  uint32_t replies;
  uint32_t reply_bytes_max;
  uint32_t application;
  uint32_t attempts_max;
  bool never_reconnect;
  bool take_over;   /* fence a server that still executes, instead of PERDURE_BUSY */
  bool hold_failed; /* set aside, until perdure_replicated_rpc_server_retry or _drop */
  uint8_t reserved; /* 0 */
} perdure_replicated_rpc_server_options;

/* `size` and texts as in perdure_log_status. */
typedef struct perdure_replicated_rpc_server_status {
  size_t size;
  uint64_t executed;
  uint64_t refused;
  uint64_t rounds;
  uint32_t epoch;
  perdure_code waiting; /* PERDURE_OK, or why it waits */
  perdure_code failure; /* PERDURE_OK, or why it executes nothing any more: PERDURE_FENCED ... */
  char waiting_message[254];
  char failure_message[254];
  uint64_t effects_bytes;
  uint64_t effects_bytes_max;
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
  size_t careful;
  uint64_t set_aside;
} perdure_replicated_rpc_server_status;

/* One client of a service. `size` and texts as in perdure_pool_description. */
typedef struct perdure_replicated_rpc_client_place {
  size_t size;
  uint64_t client_id;
  uint64_t applied;
  uint64_t waiting_bytes;
  uint32_t attempts;    /* servers that have ended in its next call */
  perdure_code failure; /* PERDURE_OK, or why this server executes no call of it any more */
  char name[33];
  char failure_message[255];
  bool held; /* its next call is set aside, and waits for an operator */
  uint8_t reserved[7];
} perdure_replicated_rpc_client_place;

/* *server is set on success only. See ReplicatedRpcServer::open. Any number of threads may use it
 * at once, and a thread of the server calls the handlers. */
perdure_code perdure_replicated_rpc_server_open(
    const perdure_replicated_rpc_server_options* options, perdure_replicated_rpc_server** server);
/* As perdure_log_open_string and perdure_log_open_file, with the options of such a server, and its
 * operations besides: see parse_replicated_rpc_server_options in replicated_rpc.h. */
perdure_code perdure_replicated_rpc_server_open_string(const char* connection,
                                                       const perdure_rpc_operation* operations,
                                                       size_t operation_count,
                                                       perdure_replicated_rpc_server** server);
perdure_code perdure_replicated_rpc_server_open_file(const char* path,
                                                     const perdure_rpc_operation* operations,
                                                     size_t operation_count,
                                                     perdure_replicated_rpc_server** server);
/* NULL is harmless. Not in one of its handlers, for which it waits. */
void perdure_replicated_rpc_server_close(perdure_replicated_rpc_server* server);
/* Bytes of the handlers, of whole calls, all of them committed. */
perdure_code perdure_replicated_rpc_server_read(perdure_replicated_rpc_server* server, uint64_t at,
                                                void* into, size_t length, uint32_t timeout_ms);
/* See ReplicatedRpcServer::replace_peer. */
perdure_code perdure_replicated_rpc_server_replace_peer(perdure_replicated_rpc_server* server,
                                                        const char* which, const char* peer);
/* An operator's decision about a call that is set aside. See ReplicatedRpcServer::retry. */
perdure_code perdure_replicated_rpc_server_retry(perdure_replicated_rpc_server* server,
                                                 const char* client, uint64_t sequence);
perdure_code perdure_replicated_rpc_server_drop(perdure_replicated_rpc_server* server,
                                                const char* client, uint64_t sequence);
perdure_code perdure_replicated_rpc_server_get_status(const perdure_replicated_rpc_server* server,
                                                      perdure_replicated_rpc_server_status* status);
/* For Prometheus. *bytes is the length of the text, of which as much is copied as `room` has for it
 * and a zero. */
perdure_code perdure_replicated_rpc_server_get_metrics(const perdure_replicated_rpc_server* server,
                                                       char* text, size_t room, size_t* bytes);
/* *there says how many clients there are; the first `count` are described. Each has its size. */
perdure_code perdure_replicated_rpc_server_get_clients(const perdure_replicated_rpc_server* server,
                                                       perdure_replicated_rpc_client_place* clients,
                                                       size_t count, size_t* there);

typedef struct perdure_replicated_rpc_client perdure_replicated_rpc_client;

/* `size` and defaults as in perdure_log_options; the fields are those of ReplicatedRpcGroup and
 * ReplicatedRpcClientOptions. */
typedef struct perdure_replicated_rpc_client_options {
  size_t size;
  const char* const* peers;
  size_t peer_count;
  const char* service;
  const char* name; /* who it is */
  size_t quorum;
  const char* transport;
  const char* rnic;
  uint64_t calls_bytes;
  uint32_t rnic_ack_timeout;
  uint32_t rnic_traffic_class;
  uint32_t peer_timeout_ms;
  uint32_t reconnect_ms;
  bool never_reconnect;
  bool reads;          /* for perdure_replicated_rpc_client_read */
  uint8_t reserved[6]; /* 0 */
} perdure_replicated_rpc_client_options;

/* `size` as in perdure_log_status. */
typedef struct perdure_replicated_rpc_client_status {
  size_t size;
  uint64_t client_id;
  uint64_t earlier_durable;
  uint64_t begun;
  uint64_t applied;
  uint64_t calls_bytes;
  uint64_t calls_bytes_max;
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
  uint32_t epoch;
  perdure_code unread;  /* PERDURE_OK, or why it learns nothing of effects now */
  perdure_code failure; /* PERDURE_OK, or why it calls nothing any more */
  char unread_message[254];
  char failure_message[254];
} perdure_replicated_rpc_client_status;

/* *client is set on success only. See ReplicatedRpcClient::open. */
perdure_code perdure_replicated_rpc_client_open(
    const perdure_replicated_rpc_client_options* options, perdure_replicated_rpc_client** client);
/* As perdure_log_open_string and perdure_log_open_file, with the options of such a client: see
 * parse_replicated_rpc_client_options in replicated_rpc.h. */
perdure_code perdure_replicated_rpc_client_open_string(const char* connection,
                                                       perdure_replicated_rpc_client** client);
perdure_code perdure_replicated_rpc_client_open_file(const char* path,
                                                     perdure_replicated_rpc_client** client);
/* NULL is harmless. */
void perdure_replicated_rpc_client_close(perdure_replicated_rpc_client* client);
/* Begins a call; the payload is copied. `order_key` 0: none. See ReplicatedRpcClient::call. */
perdure_code perdure_replicated_rpc_client_call(perdure_replicated_rpc_client* client,
                                                uint32_t operation, const void* payload,
                                                size_t bytes, uint64_t order_key,
                                                perdure_rpc_handle* handle);
/* Waits until the call is at `level`: see ReplicatedRpcClient::wait. */
perdure_code perdure_replicated_rpc_client_wait(perdure_replicated_rpc_client* client,
                                                const perdure_rpc_handle* handle,
                                                perdure_rpc_level level, uint32_t timeout_ms);
/* Waits until it is applied. *bytes is the size of the reply, of which up to `room` bytes are
 * copied. */
perdure_code perdure_replicated_rpc_client_reply(perdure_replicated_rpc_client* client,
                                                 const perdure_rpc_handle* handle,
                                                 uint32_t timeout_ms, perdure_rpc_outcome* outcome,
                                                 void* reply, size_t room, size_t* bytes);
/* Bytes of the handlers, of whole calls, all of them committed: see ReplicatedRpcClient::read. */
perdure_code perdure_replicated_rpc_client_read(perdure_replicated_rpc_client* client, uint64_t at,
                                                void* into, size_t length, uint32_t timeout_ms);
/* See ReplicatedRpcClient::replace_peer. */
perdure_code perdure_replicated_rpc_client_replace_peer(perdure_replicated_rpc_client* client,
                                                        const char* which, const char* peer);
/* A call of this client by its sequence, an earlier process's too. */
perdure_code perdure_replicated_rpc_client_handle_of(const perdure_replicated_rpc_client* client,
                                                     uint64_t sequence, perdure_rpc_handle* handle);
perdure_code perdure_replicated_rpc_client_get_status(const perdure_replicated_rpc_client* client,
                                                      perdure_replicated_rpc_client_status* status);
/* As perdure_replicated_rpc_server_get_metrics. */
perdure_code perdure_replicated_rpc_client_get_metrics(const perdure_replicated_rpc_client* client,
                                                       char* text, size_t room, size_t* bytes);

/* --- messages --------------------------------------------------------------------------------- */

typedef enum perdure_severity {
  PERDURE_DEBUG,
  PERDURE_INFO,
  PERDURE_WARNING,
  PERDURE_ERROR
} perdure_severity;

/* Called by any thread, one call at a time; the library waits for it. */
typedef void (*perdure_message_callback)(perdure_severity severity, const char* message,
                                         void* context);
/* Who gets what the library would like to say, in this process; NULL: nobody, as at the start. When
 * it returns, the earlier one is not being called any more. Not to be called by a callback. */
perdure_code perdure_set_message_callback(perdure_message_callback callback, void* context);

/* NOLINTEND(modernize-use-using) */

#ifdef __cplusplus
}
#endif

#endif

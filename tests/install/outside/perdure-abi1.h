/* include/perdure/perdure.h as it was when PERDURE_ABI_VERSION became 1, without its comments: what
 * programs were compiled with that are still to run. It is never changed; old_header.c uses it. */
#ifndef PERDURE_ABI1_H
#define PERDURE_ABI1_H

#include <perdure/version.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

const char* perdure_code_name(perdure_code code);

const char* perdure_last_error(void);

typedef enum perdure_level {
  PERDURE_RECEIVED,
  PERDURE_VISIBLE,
  PERDURE_DURABLE,
  PERDURE_COMMITTED
} perdure_level;

typedef struct perdure_log_options {
  size_t size;
  const char* const* peers;
  size_t peer_count;
  const char* pool;
  size_t quorum;
  const char* transport;
  const char* rnic;
  const char* shape;
  const char* primary;
  bool visible_only;
  bool existing_only;
  bool usual_costs;
  bool take_over;
  bool accept_loss;
  bool never_spin;
  uint64_t record_bytes_max;
  size_t batches_in_flight;
  const char* writer_name;
  uint32_t replica_timeout_ms;
  uint32_t reconnect_ms;
  uint32_t spin_us;
} perdure_log_options;

typedef struct perdure_log perdure_log;

typedef struct perdure_ticket {
  uint64_t lsn;
  uint64_t end;
  uint64_t index;
  uint64_t writer;
} perdure_ticket;

typedef struct perdure_log_status {
  size_t size;
  uint32_t epoch;
  uint64_t head;
  uint64_t tail;
  uint64_t committed;
  uint64_t next_index;
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
} perdure_log_status;

perdure_code perdure_log_open(const perdure_log_options* options, perdure_log** log);

perdure_code perdure_log_open_string(const char* connection, perdure_log** log);

perdure_code perdure_log_open_file(const char* path, perdure_log** log);

void perdure_log_close(perdure_log* log);

perdure_code perdure_log_append(perdure_log* log, const void* record, size_t bytes,
                                perdure_ticket* ticket);
perdure_code perdure_log_wait(perdure_log* log, const perdure_ticket* ticket, perdure_level level,
                              uint32_t timeout_ms);

perdure_code perdure_log_poll(perdure_log* log);

perdure_code perdure_log_trim(perdure_log* log, uint64_t lsn);

perdure_code perdure_log_repair(perdure_log* log, size_t* repaired);
perdure_code perdure_log_get_status(const perdure_log* log, perdure_log_status* status);

#define PERDURE_TIME_CLASSES 23
typedef struct perdure_time_counts {
  uint64_t classes[PERDURE_TIME_CLASSES];
  uint64_t sum_ns;
} perdure_time_counts;

typedef struct perdure_log_times {
  size_t size;
  perdure_time_counts durable;
  perdure_time_counts committed;
} perdure_log_times;

uint64_t perdure_time_class_end_ns(size_t index);

uint64_t perdure_time_quantile_ns(const perdure_time_counts* counts, double fraction);
perdure_code perdure_log_get_times(const perdure_log* log, perdure_log_times* times);

typedef struct perdure_log_writer perdure_log_writer;

typedef struct perdure_finished {
  uint64_t tag;
  perdure_code code;
  perdure_ticket ticket;
} perdure_finished;

perdure_code perdure_log_writer_open(const perdure_log_options* options, bool own_thread,
                                     perdure_log_writer** writer);

perdure_code perdure_log_writer_close(perdure_log_writer* writer, uint32_t timeout_ms);

perdure_code perdure_log_writer_commit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       perdure_level level, uint32_t timeout_ms,
                                       perdure_ticket* ticket);

perdure_code perdure_log_writer_submit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       uint64_t tag, perdure_level level, uint32_t timeout_ms);

perdure_code perdure_log_writer_poll(perdure_log_writer* writer);

int perdure_log_writer_completion_fd(const perdure_log_writer* writer);

perdure_code perdure_log_writer_take(perdure_log_writer* writer, perdure_finished* finished,
                                     size_t count, size_t* taken);
perdure_code perdure_log_writer_trim(perdure_log_writer* writer, uint64_t lsn);
perdure_code perdure_log_writer_get_status(perdure_log_writer* writer, perdure_log_status* status);
perdure_code perdure_log_writer_get_times(perdure_log_writer* writer, perdure_log_times* times);

typedef struct perdure_reader_options {
  size_t size;
  const char* const* peers;
  size_t peer_count;
  const char* pool;
  const char* transport;
  const char* rnic;
  uint64_t from_lsn;
  uint64_t from_index;
  bool uncommitted;
  uint32_t timeout_ms;
} perdure_reader_options;

typedef struct perdure_reader perdure_reader;

typedef struct perdure_record {
  uint64_t lsn;
  uint64_t index;
  uint32_t epoch;
  const void* bytes;
  size_t length;
} perdure_record;

perdure_code perdure_reader_open(const perdure_reader_options* options, perdure_reader** reader);

perdure_code perdure_log_reader(const perdure_log* log, const perdure_reader_options* options,
                                perdure_reader** reader);
void perdure_reader_close(perdure_reader* reader);

perdure_code perdure_reader_next(perdure_reader* reader, perdure_record* record, bool* found);

perdure_code perdure_reader_get_position(const perdure_reader* reader, uint64_t* position,
                                         uint64_t* committed);

typedef struct perdure_region_options {
  size_t size;
  const char* const* peers;
  size_t peer_count;
  const char* pool;
  size_t quorum;
  const char* transport;
  const char* rnic;
  const char* primary;
  bool visible_only;
  bool existing_only;
  bool usual_costs;
  bool take_over;
  uint64_t staging_bytes;
  const char* writer_name;
  uint32_t peer_timeout_ms;
} perdure_region_options;

typedef struct perdure_region perdure_region;

typedef struct perdure_range {
  uint64_t at;
  const void* bytes;
  size_t length;
  uint32_t epoch;
} perdure_range;

typedef struct perdure_region_status {
  size_t size;
  uint64_t bytes;
  uint64_t begun;
  uint64_t committed;
  size_t quorum;
  size_t replicas;
  size_t replicas_up;
  size_t replicas_whole;
  bool may_differ;
} perdure_region_status;

typedef struct perdure_region_ticket {
  uint64_t number;
  uint64_t writer;
} perdure_region_ticket;

perdure_code perdure_region_open(const perdure_region_options* options, perdure_region** region);

perdure_code perdure_region_close(perdure_region* region, uint32_t timeout_ms);

perdure_code perdure_region_write(perdure_region* region, const perdure_range* ranges, size_t count,
                                  perdure_region_ticket* ticket);

perdure_code perdure_region_wait(perdure_region* region, const perdure_region_ticket* ticket,
                                 perdure_level level, uint32_t timeout_ms);

perdure_code perdure_region_flush(perdure_region* region, perdure_level level, uint32_t timeout_ms);

perdure_code perdure_region_reached(const perdure_region* region,
                                    const perdure_region_ticket* ticket, perdure_level level,
                                    bool* yes);

perdure_code perdure_region_poll(perdure_region* region);

perdure_code perdure_region_fetch_add(perdure_region* region, uint64_t at, uint64_t addend,
                                      uint64_t* before);
perdure_code perdure_region_compare_swap(perdure_region* region, uint64_t at, uint64_t expected,
                                         uint64_t value, uint64_t* before);
perdure_code perdure_region_store(perdure_region* region, uint64_t at, uint64_t value,
                                  uint64_t* before);

#define PERDURE_ANY_REPLICA SIZE_MAX
perdure_code perdure_region_read(perdure_region* region, uint64_t at, void* into, size_t length,
                                 size_t replica);

perdure_code perdure_region_completion_fd(perdure_region* region, int* fd);
perdure_code perdure_region_arm(perdure_region* region, bool* armed);

perdure_code perdure_region_note_equal(perdure_region* region);
perdure_code perdure_region_get_status(const perdure_region* region, perdure_region_status* status);

typedef enum perdure_pool_state {
  PERDURE_POOL_OPEN,
  PERDURE_POOL_CLOSED,
  PERDURE_POOL_UNAVAILABLE
} perdure_pool_state;

typedef struct perdure_pool_description {
  size_t size;
  char name[65];
  char uuid[37];
  perdure_pool_state state;
  uint64_t bytes;
  uint32_t epoch;
  bool writer_present;
  char writer_name[65];
  char profile[128];
  char reason[512];
} perdure_pool_description;

perdure_code perdure_pool_create(const char* peer, const char* name, uint64_t bytes, bool small,
                                 uint32_t timeout_ms, perdure_pool_description* description);
perdure_code perdure_pool_describe(const char* peer, const char* name, uint32_t timeout_ms,
                                   perdure_pool_description* description);

perdure_code perdure_pool_list(const char* peer, uint32_t timeout_ms,
                               perdure_pool_description* pools, size_t count, size_t* there);

perdure_code perdure_pool_delete(const char* peer, const char* name, const char* uuid,
                                 uint32_t timeout_ms);

typedef enum perdure_severity {
  PERDURE_DEBUG,
  PERDURE_INFO,
  PERDURE_WARNING,
  PERDURE_ERROR
} perdure_severity;

typedef void (*perdure_message_callback)(perdure_severity severity, const char* message,
                                         void* context);

perdure_code perdure_set_message_callback(perdure_message_callback callback, void* context);

#ifdef __cplusplus
}
#endif

#endif

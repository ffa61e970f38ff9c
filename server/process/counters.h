// The server's counters. Every loss has a named counter; none is only logged.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::server {

// Thread-safe; each value only grows.
struct Counters {
  std::atomic<uint64_t> batches{0};        // accepted, each once
  std::atomic<uint64_t> evidence{0};       // items in them
  std::atomic<uint64_t> streams{0};        // accepted, with reconnections
  std::atomic<uint64_t> duplicates{0};     // batches that were already held
  std::atomic<uint64_t> out_of_order{0};   // batches that waited for an earlier one
  std::atomic<uint64_t> paused_reads{0};   // times a stream was not read because the queue was full
  std::atomic<uint64_t> stopped_ahead{0};  // not read because it was far ahead of another stream
  // not read because its peer does not read the answers
  std::atomic<uint64_t> unread_answers{0};
  std::atomic<uint64_t> rejected_batches{0};   // malformed, refused by number
  std::atomic<uint64_t> rejected_evidence{0};  // items in those
  std::atomic<uint64_t> damaged_batches{0};    // changed on the way: their checksum did not match
  std::atomic<uint64_t> engine_refused{0};  // items the engine refused after they passed the checks
  std::atomic<uint64_t> skipped_batches{0};  // numbers that an agent will never send
  std::atomic<uint64_t> broken_streams{0};   // ended because of a protocol error
  std::atomic<uint64_t> unauthenticated{0};  // calls refused: unknown caller
  std::atomic<uint64_t> forbidden{0};        // calls refused: not allowed for this caller
  std::atomic<uint64_t> revoked_calls{0};    // ended because a token expired or was revoked
  std::atomic<uint64_t> refused_runs{0};     // hellos beyond the limit of runs
  std::atomic<uint64_t> waited_hellos{0};    // hellos that waited in the queue for a place
  std::atomic<uint64_t> slow_hellos{0};      // calls ended because they sent no hello in time
  // requests with a body, method or headers that are not allowed
  std::atomic<uint64_t> http_refused{0};
  // connections closed because their request or answer took too long
  std::atomic<uint64_t> http_slow{0};
  std::atomic<uint64_t> http_dropped{0};  // connections closed for lack of space: the oldest slow
                                          // one
  std::atomic<uint64_t> journal_commits{0};
  std::atomic<uint64_t> journal_entries{0};
  std::atomic<uint64_t> journal_bytes{0};
  std::atomic<uint64_t> journal_failures{0};  // failed writes and syncs, with retries
  std::atomic<uint64_t> checkpoints{0};
  std::atomic<uint64_t> checkpoint_failures{0};
  std::atomic<uint64_t> directives{0};             // sent
  std::atomic<uint64_t> stop_directives{0};        // sent, to end the training
  std::atomic<uint64_t> directives_cut{0};         // for which an agent gave less than requested
  std::atomic<uint64_t> capsule_parts_dropped{0};  // for lack of memory; requested again
  std::atomic<uint64_t> capsule_errors{0};         // parts that did not fit, and disk errors
  std::atomic<uint64_t> capsules_not_taken{0};     // beyond the limit of a run
  std::atomic<uint64_t> capsules_expired{0};       // removed by the limit on bytes
  std::atomic<uint64_t> redacted{0};         // evidence items whose ids were hashed on receipt
  std::atomic<uint64_t> samples_expired{0};  // evidence items whose samples were too old
  std::atomic<uint64_t> journal_lost{0};     // entries that were found damaged or missing
};

}  // namespace plumbline::server

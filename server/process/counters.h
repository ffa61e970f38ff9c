// What the server counts about itself. Every loss is a named counter; nothing is only logged.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline::server {

// Thread-safe; each value only grows.
struct Counters {
  std::atomic<uint64_t> batches{0};        // accepted, each once
  std::atomic<uint64_t> evidence{0};       // items in them
  std::atomic<uint64_t> streams{0};        // ever welcomed, reconnections included
  std::atomic<uint64_t> duplicates{0};     // batches that were held already
  std::atomic<uint64_t> out_of_order{0};   // batches that waited for an earlier one
  std::atomic<uint64_t> paused_reads{0};   // times a stream was not read because the queue was full
  std::atomic<uint64_t> stopped_ahead{0};  // ... because it was far ahead of another
  // ... because its peer does not read the answers
  std::atomic<uint64_t> unread_answers{0};
  std::atomic<uint64_t> rejected_batches{0};   // malformed, refused by number
  std::atomic<uint64_t> rejected_evidence{0};  // items in those
  std::atomic<uint64_t> damaged_batches{0};    // not as they were sent: their checksum did not fit
  std::atomic<uint64_t> engine_refused{0};     // items the engine refused after our checks passed
  std::atomic<uint64_t> skipped_batches{0};    // numbers an agent says it will never send
  std::atomic<uint64_t> broken_streams{0};     // ended because of a protocol error
  std::atomic<uint64_t> unauthenticated{0};    // calls refused: nobody that is known here
  std::atomic<uint64_t> forbidden{0};          // ... or not allowed to do that
  std::atomic<uint64_t> revoked_calls{0};      // ended because a token expired or was revoked
  std::atomic<uint64_t> refused_runs{0};       // hellos whose run was one too many
  std::atomic<uint64_t> slow_hellos{0};        // calls ended that said no hello in time
  std::atomic<uint64_t> http_refused{0};  // requests: a body, a method, headers that may not be
  std::atomic<uint64_t> http_slow{0};     // connections cut: their request or answer took too long
  std::atomic<uint64_t> http_dropped{0};  // ... for want of room: the oldest that dawdled
  std::atomic<uint64_t> journal_commits{0};
  std::atomic<uint64_t> journal_entries{0};
  std::atomic<uint64_t> journal_bytes{0};
  std::atomic<uint64_t> journal_failures{0};  // writes and syncs refused, retries included
  std::atomic<uint64_t> checkpoints{0};
  std::atomic<uint64_t> checkpoint_failures{0};
  std::atomic<uint64_t> directives{0};             // sent
  std::atomic<uint64_t> stop_directives{0};        // sent: the training is to end
  std::atomic<uint64_t> directives_cut{0};         // of which an agent gave less than asked for
  std::atomic<uint64_t> capsule_parts_dropped{0};  // for want of room; asked for again
  std::atomic<uint64_t> capsule_errors{0};      // parts that did not fit, and refusals of the disk
  std::atomic<uint64_t> capsules_not_taken{0};  // beyond the bound of a run
  std::atomic<uint64_t> capsules_expired{0};    // removed by the bound on bytes
  std::atomic<uint64_t> redacted{0};            // evidence items whose ids were hashed on receipt
  std::atomic<uint64_t> samples_expired{0};     // evidence items whose samples were too old
  std::atomic<uint64_t> journal_lost{0};        // entries that were found damaged or missing
};

}  // namespace plumbline::server

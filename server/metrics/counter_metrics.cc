// Exports counters.h as metrics.
#include "server/metrics/server_metrics.h"

namespace plumbline::server {
namespace {

struct CounterMetric {
  const char* field;
  std::atomic<uint64_t> Counters::*value;
  const char* name;
  const char* help;
};

// If a counter of counters.h is missing here, the test of the metrics fails.
#define PLUMB_COUNTER(field, name, help) \
  { #field, &Counters::field, "plumbline_" name "_total", help }
constexpr CounterMetric kCounters[] = {
    PLUMB_COUNTER(batches, "batches", "Accepted batches, each counted once."),
    PLUMB_COUNTER(evidence, "evidence", "Evidence items in accepted batches."),
    PLUMB_COUNTER(streams, "streams", "Accepted streams, including reconnections."),
    PLUMB_COUNTER(duplicates, "duplicate_batches", "Batches that the server already had."),
    PLUMB_COUNTER(out_of_order, "out_of_order_batches", "Batches that waited for an earlier one."),
    PLUMB_COUNTER(paused_reads, "paused_reads",
                  "Times a stream was not read because the queue to the rules was full."),
    PLUMB_COUNTER(stopped_ahead, "stopped_ahead_reads",
                  "Times a stream was not read because it was far ahead of another."),
    PLUMB_COUNTER(unread_answers, "unread_answers",
                  "Times a stream was not read because its peer did not read the answers."),
    PLUMB_COUNTER(rejected_batches, "rejected_batches", "Malformed batches, refused by number."),
    PLUMB_COUNTER(damaged_batches, "damaged_batches",
                  "Batches whose checksum did not match their bytes."),
    PLUMB_COUNTER(rejected_evidence, "rejected_evidence", "Evidence items in refused batches."),
    PLUMB_COUNTER(engine_refused, "engine_refused_evidence",
                  "Evidence items that the rule engine refused."),
    PLUMB_COUNTER(skipped_batches, "skipped_batches",
                  "Batches that an agent reported as never to be sent."),
    PLUMB_COUNTER(broken_streams, "broken_streams", "Streams ended because of a protocol error."),
    PLUMB_COUNTER(unauthenticated, "unauthenticated_calls",
                  "Calls refused because the caller was not authenticated."),
    PLUMB_COUNTER(forbidden, "forbidden_calls",
                  "Calls refused because the caller lacks the access right."),
    PLUMB_COUNTER(revoked_calls, "revoked_calls",
                  "Calls ended because a token expired or was revoked."),
    PLUMB_COUNTER(refused_runs, "refused_runs", "Hellos refused because of the limit of runs."),
    PLUMB_COUNTER(waited_hellos, "waited_hellos",
                  "Hellos that waited because of the limit of runs."),
    PLUMB_COUNTER(slow_hellos, "slow_hello_calls",
                  "Calls ended because they sent no hello in time."),
    PLUMB_COUNTER(http_refused, "http_refused_requests",
                  "HTTP requests refused before processing: a body, an unsupported method, headers "
                  "that are malformed or too large."),
    PLUMB_COUNTER(http_slow, "http_slow_connections",
                  "HTTP connections closed because a request or its answer took too long."),
    PLUMB_COUNTER(
        http_dropped, "http_dropped_connections",
        "HTTP connections closed in favour of newer ones, because of the limit of connections."),
    PLUMB_COUNTER(directives, "directives", "Directives sent to agents."),
    PLUMB_COUNTER(stop_directives, "stop_directives",
                  "Directives sent to agents whose trainer ends at a finding (stop_on)."),
    PLUMB_COUNTER(directives_cut, "directives_cut",
                  "Directives that an agent fulfilled only in part."),
    PLUMB_COUNTER(capsule_parts_dropped, "capsule_parts_dropped",
                  "Parts of capsules dropped because of missing space, and requested again."),
    PLUMB_COUNTER(capsule_errors, "capsule_errors",
                  "Invalid parts of capsules, and failed writes to disk."),
    PLUMB_COUNTER(capsules_not_taken, "capsules_not_taken",
                  "Capsules not taken because of the limit per run."),
    PLUMB_COUNTER(redacted, "redacted_evidence",
                  "Evidence items whose ids were replaced by hashes on receipt."),
    PLUMB_COUNTER(samples_expired, "samples_expired",
                  "Evidence items whose samples were removed because they were too old."),
    PLUMB_COUNTER(capsules_expired, "capsules_expired",
                  "Capsules removed because of the limit of bytes."),
    PLUMB_COUNTER(journal_commits, "journal_commits", "Commits of the journal."),
    PLUMB_COUNTER(journal_entries, "journal_entries", "Entries written to the journal."),
    PLUMB_COUNTER(journal_bytes, "journal_bytes", "Bytes written to the journal."),
    PLUMB_COUNTER(journal_failures, "journal_failures",
                  "Failed writes and syncs of the journal, including retries."),
    PLUMB_COUNTER(journal_lost, "journal_lost_entries",
                  "Entries of the journal that were found damaged or missing."),
    PLUMB_COUNTER(checkpoints, "checkpoints", "Checkpoints written."),
    PLUMB_COUNTER(checkpoint_failures, "checkpoint_failures", "Checkpoints not written."),
};
#undef PLUMB_COUNTER

}  // namespace

std::vector<std::pair<std::string, std::string>> CounterMetricNames() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const CounterMetric& c : kCounters) out.emplace_back(c.field, c.name);
  return out;
}

void AddCounters(const Counters& counters, MetricFamilies* out) {
  for (const CounterMetric& c : kCounters)
    out->Counter(c.name, c.help, static_cast<double>((counters.*c.value).load()));
}

}  // namespace plumbline::server

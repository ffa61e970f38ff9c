// Metrics by which an operator sees problems in advance: a disk that fills, an old checkpoint,
// expiring certificates.
#include "server/journal/segments.h"
#include "server/metrics/server_metrics.h"
#include "server/process/health.h"

namespace plumbline::server {
namespace {

void AddDisk(const MetricSources& s, MetricFamilies* out) {
  DiskSpace space;
  if (!SpaceOf(s.directory, &space)) return;
  out->Gauge("plumbline_disk_free_bytes", "Free bytes of the disk of --data.",
             static_cast<double>(space.free));
  out->Gauge("plumbline_disk_size_bytes", "All bytes of the disk of --data.",
             static_cast<double>(space.size));
  out->Gauge("plumbline_journal_disk_bytes", "Bytes of the journal on disk.",
             static_cast<double>(JournalBytes(s.journal_directory)));
}

void AddCheckpoint(const MetricSources& s, double started, double now, MetricFamilies* out) {
  if (s.checkpointer == nullptr) return;
  const int64_t written = s.checkpointer->last_unix_ns();
  out->Gauge("plumbline_checkpoint_age_seconds",
             "Time since the newest checkpoint, or since the start if there is none.",
             now - (written == 0 ? started : static_cast<double>(written) / 1e9));
  if (s.judge == nullptr) return;
  const uint64_t judged = s.judge->judged_entry(), last = s.checkpointer->last_entry();
  out->Gauge("plumbline_checkpoint_behind_entries",
             "Entries judged since the newest checkpoint: a restart judges them again.",
             judged > last ? static_cast<double>(judged - last) : 0);
}

}  // namespace

void AddKeeping(const MetricSources& s, double started_unix_s, double unix_s, MetricFamilies* out) {
  if (s.serving) {
    out->Gauge("plumbline_serving",
               "1: evidence can be acknowledged; 0: it cannot, /healthz returns the reason.",
               s.serving().ok() ? 1 : 0);
  }
  AddDisk(s, out);
  AddCheckpoint(s, started_unix_s, unix_s, out);
  if (s.certificates) {
    for (const auto& one : s.certificates()) {
      out->Gauge("plumbline_certificate_expiry_timestamp_seconds",
                 "Expiry time of a certificate of [tls].", static_cast<double>(one.unix_s),
                 {{"file", one.of}});
    }
  }
  if (s.tokens) {
    for (const auto& one : s.tokens()) {
      out->Gauge("plumbline_token_expiry_timestamp_seconds",
                 "Expiry time of the next token of an access entry.",
                 static_cast<double>(one.unix_s), {{"entry", one.of}});
    }
  }
}

}  // namespace plumbline::server

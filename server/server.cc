#include "server/server.h"

#include <dlfcn.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_server.h"
#include "server/ingest/ingest_service.h"
#include "server/journal/data_directory.h"
#include "server/journal/journal.h"
#include "server/journal/journal_scan.h"
#include "server/judge/judge.h"
#include "server/query/query_service.h"
#include "server/store/store.h"

namespace plumbline::server {
namespace {

// Without --data scalars are kept in memory, the newest ones.
constexpr uint64_t kStoreBytesInMemory = 256u << 20;

std::chrono::nanoseconds Seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

JudgeOptions JudgeOptionsOf(const Config& c) {
  JudgeOptions o;
  o.engine.rules = c.rules;
  o.engine.settings = c.settings;
  o.engine.window_steps = c.window_steps;
  o.grace = Seconds(c.grace_seconds);
  o.queue_bytes = static_cast<size_t>(c.queue_bytes);
  return o;
}

IngestOptions IngestOptionsOf(const Config& c) {
  IngestOptions o;
  o.server_version = Version();
  o.limits.max_name_bytes = static_cast<size_t>(c.max_name_bytes);
  o.waiting.waiting_batches = static_cast<size_t>(c.waiting_batches);
  o.waiting.waiting_bytes = static_cast<size_t>(c.waiting_bytes);
  o.max_streams = static_cast<size_t>(c.max_streams);
  o.ack_batches = static_cast<uint64_t>(c.ack_batches);
  o.ack_delay = Seconds(c.ack_seconds);
  return o;
}

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

JournalOptions JournalOptionsOf(const Config& c, const std::string& directory) {
  JournalOptions o;
  o.segments.directory = directory;
  o.segments.tool_version = Version();
  o.segments.sync = c.journal_sync == "commit"     ? SyncPolicy::kCommit
                    : c.journal_sync == "interval" ? SyncPolicy::kInterval
                                                   : SyncPolicy::kNever;
  o.segments.sync_interval = Seconds(c.journal_sync_seconds);
  o.segments.segment_bytes = static_cast<uint64_t>(c.journal_segment_bytes);
  o.segments.compress = c.journal_compress;
  o.commit_delay = Seconds(c.journal_commit_ms / 1000);
  o.commit_bytes = static_cast<size_t>(c.journal_commit_bytes);
  o.unix_ns = UnixNanos;
  return o;
}

StoreOptions StoreOptionsOf(const Config& c, const DataDirectory* data, uint64_t newest_entry) {
  StoreOptions o;
  o.retention.max_bytes = static_cast<uint64_t>(c.store_bytes);
  o.retention.max_age_s = static_cast<int64_t>(c.store_days * 86400);
  if (data == nullptr) {
    o.retention.max_bytes = std::min(o.retention.max_bytes, kStoreBytesInMemory);
    return o;
  }
  o.path = data->store();
  o.origin.journal_id = data->journal_id();
  o.origin.newest_entry = newest_entry;
  return o;
}

std::string WithPort(const std::string& address, int port) {
  if (address.rfind("unix:", 0) == 0) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// The library of the reflection service registers itself when it is loaded: so it is loaded only
// when reflection is asked for, and plumbd does not link it.
absl::Status LoadReflection() {
  if (dlopen(PLUMBLINE_REFLECTION_LIBRARY, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("--reflection: ", dlerror()));
}

void SetChannelArguments(const Config& config, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(config.message_bytes));
  // Two servers on one port would share its connections by chance.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A host that lost its power is noticed; agents may do the same.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

class ServerImpl : public Server {
 public:
  ~ServerImpl() override {
    Stop();
    if (judge_ != nullptr) StopJudging();
  }

  absl::Status Init(const Config& config) {
    if (auto s = OpenJournal(config); !s.ok()) return s;
    query_ = QueryService::Create(SourcesOfQueries());
    if (config.reflection) {
      if (auto s = LoadReflection(); !s.ok()) return s;
    }
    if (auto s = Listen(config); !s.ok()) return s;
    if (config.http == "off") return absl::OkStatus();
    auto http = HttpServer::Start(config.http, Version());
    if (!http.ok()) return http.status();
    http_ = std::move(*http);
    return absl::OkStatus();
  }

  std::string grpc_address() const override { return grpc_address_; }
  std::string http_address() const override { return http_ ? http_->address() : ""; }

  void Stop() override {
    if (grpc_ == nullptr) return;
    grpc_->GetHealthCheckService()->SetServingStatus(false);
    http_.reset();
    ingest_->Shutdown();
    query_->Shutdown();
    grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    StopJudging();
    grpc_.reset();
  }

 private:
  // Takes up what a former process left, and goes on behind it. What was acknowledged then is known
  // when this returns; it is judged meanwhile.
  absl::Status OpenJournal(const Config& config) {
    JournalScan scan(static_cast<size_t>(config.max_streams));
    Replay replay;
    std::string directory;
    if (config.data_directory.empty()) {
      spdlog::warn("no --data: nothing is kept; what was acknowledged is lost with this process");
    } else {
      auto data = DataDirectory::Open(config.data_directory);
      if (!data.ok()) return data.status();
      data_ = std::move(*data);
      directory = data_->journal();
      auto scanned = ScanJournal(directory, 1, static_cast<size_t>(config.max_streams));
      if (!scanned.ok()) return scanned.status();
      scan = std::move(*scanned);
      ReportScan(scan);
      if (scan.oldest > 0) {
        replay.directory = directory;
        replay.from = scan.oldest;
        replay.to = scan.last;
        replay.events = std::move(scan.events);
      }
    }
    if (auto s = OpenJudge(config, scan.last); !s.ok()) return s;
    JournalOptions options = JournalOptionsOf(config, directory);
    options.on_stall = [judge = judge_.get()](bool stalled) { judge->Hold(stalled); };
    journal_ = std::make_unique<Journal>(std::move(options), scan.last, scan.streams, &counters_);
    ingest_ = IngestService::Create(IngestOptionsOf(config), scan.streams, journal_.get(),
                                    judge_.get(), &counters_);
    judge_->Start(journal_.get(), std::move(replay));
    return absl::OkStatus();
  }

  // `newest`: the last entry of the journal.
  absl::Status OpenJudge(const Config& config, uint64_t newest) {
    auto store = Store::Open(StoreOptionsOf(config, data_.get(), newest));
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    if (data_ != nullptr) book_.SetIdentity(data_->journal_id());
    book_.SetQuietSteps(config.quiet_steps);
    book_.SetOnRevision([this](const std::string& fingerprint, const v1::IncidentRevision& r) {
      store_->AddRevision(fingerprint, r);
    });
    JudgeOptions options = JudgeOptionsOf(config);
    options.store = store_.get();
    auto judge = Judge::Create(options, &book_, &counters_);
    if (!judge.ok()) return judge.status();
    judge_ = std::move(*judge);
    return absl::OkStatus();
  }

  QuerySources SourcesOfQueries() {
    QuerySources sources;
    sources.version = Version();
    sources.judge = judge_.get();
    sources.book = &book_;
    sources.counters = &counters_;
    sources.store = store_.get();
    sources.update = [this](v1::IncidentUpdate update, std::function<void(absl::Status)> done) {
      v1::JudgeEvent event;
      *event.mutable_incident() = std::move(update);
      judge_->Decide(std::move(event), std::move(done));
    };
    return sources;
  }

  void ReportScan(const JournalScan& scan) {
    for (const LostEntries& lost : scan.lost) {
      counters_.journal_lost += lost.last - lost.first + 1;
      spdlog::error("journal: {}; entries {} to {} are lost", lost.where, lost.first, lost.last);
    }
    if (scan.oldest > 0) {
      spdlog::info("journal: entries {} to {}, {} streams", scan.oldest, scan.last,
                   scan.streams.streams().size());
    }
  }

  // The journal first: what it has taken is judged, and nobody waits for it any more.
  void StopJudging() {
    if (journal_ != nullptr) journal_->Stop();
    judge_->Stop();
  }

  absl::Status Listen(const Config& config) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config.grpc, grpc::InsecureServerCredentials(), &port);
    SetChannelArguments(config, &builder);
    builder.RegisterService(ingest_->service());
    builder.RegisterService(query_->service());
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr || port == 0) {
      grpc_ = nullptr;
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", config.grpc, ": is another plumbd running? (--grpc HOST:PORT)"));
    }
    grpc_address_ = WithPort(config.grpc, port);
    return absl::OkStatus();
  }

  Counters counters_;
  std::unique_ptr<DataDirectory> data_;  // first: held until all else is gone
  IncidentBook book_{[this] { return judge_->unix_ns(); }};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Judge> judge_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<IngestService> ingest_;
  std::unique_ptr<QueryService> query_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<grpc::Server> grpc_;
  std::string grpc_address_;
};

}  // namespace

std::string Version() { return PLUMBLINE_VERSION; }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  if (auto s = ValidateConfig(config); !s.ok()) return s;
  auto server = std::make_unique<ServerImpl>();
  if (auto s = server->Init(config); !s.ok()) return s;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace plumbline::server

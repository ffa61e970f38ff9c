#include "server/assembly/server.h"

#include <dlfcn.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/version/build_version.h"
#include "server/access/tls.h"
#include "server/alerts/alert_center.h"
#include "server/assembly/pipeline.h"
#include "server/http/http_server.h"
#include "server/ingest/ingest_service.h"
#include "server/metrics/server_metrics.h"
#include "server/process/health.h"
#include "server/process/log.h"
#include "server/process/memory_limit.h"
#include "server/process/stop_times.h"
#include "server/query/query_service.h"
#include "server/settings/redact_key.h"
#include "server/web/host_check.h"
#include "server/web/web_service.h"

namespace plumbline::server {
namespace {

IngestOptions IngestOptionsOf(const Config& c) {
  IngestOptions o;
  o.server_version = Version();
  o.limits.max_name_bytes = static_cast<size_t>(c.max_name_bytes);
  o.waiting.waiting_batches = static_cast<size_t>(c.waiting_batches);
  o.waiting.waiting_bytes = static_cast<size_t>(c.waiting_bytes);
  o.window_steps = c.window_steps;
  o.patience = NanosecondsOf(c.grace_seconds);
  o.max_streams = static_cast<size_t>(c.max_streams);
  o.max_ranks = static_cast<size_t>(c.max_ranks);
  o.shares = Shares(c);
  o.max_runs = static_cast<size_t>(c.max_runs);
  o.max_series = static_cast<size_t>(c.max_series);
  o.name_bytes = c.name_bytes > 0 ? static_cast<uint64_t>(c.name_bytes) : MemoryLimit() / 16;
  o.waiting_bytes = static_cast<uint64_t>(c.queue_bytes);
  o.hello_within = NanosecondsOf(c.hello_seconds);
  o.ack_batches = static_cast<uint64_t>(c.ack_batches);
  o.ack_delay = NanosecondsOf(c.ack_seconds);
  return o;
}

std::string WithPort(const std::string& address, int port) {
  if (address.rfind("unix:", 0) == 0) return address;
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// Loads the library of the reflection service, which registers itself when it is loaded. So plumbd
// does not link the library, and loads it only if reflection is requested.
absl::Status LoadReflection() {
  if (dlopen(PLUMBLINE_REFLECTION_LIBRARY, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("--reflection: ", dlerror()));
}

}  // namespace

size_t ReceiveBytesOf(const Config& config) {
  if (config.receive_bytes > 0) return static_cast<size_t>(config.receive_bytes);
  return std::max<size_t>(MemoryLimit() / 8, 2 * static_cast<size_t>(config.message_bytes));
}

void SetLimits(const Config& config, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(config.message_bytes));
  // Limits the memory of incomplete messages, of all connections.
  grpc::ResourceQuota quota("plumbd");
  quota.Resize(ReceiveBytesOf(config));
  builder->SetResourceQuota(quota);
  // gRPC decompresses a message before it checks its size, so a few KiB could become GiB. Our
  // clients do not compress.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  // Ends slow handshakes and idle connections.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(config.hello_seconds * 1000));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300000);
  // Per connection: an agent has one call, a page several.
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1000);
}

namespace {

void SetChannelArguments(grpc::ServerBuilder* builder) {
  // Two servers on one port would share its connections at random.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Detects a host that lost its power; agents may do the same.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

class ServerImpl : public Server {
 public:
  ~ServerImpl() override {
    Stop();
    pipeline_.Stop();  // the timer may run even if nothing listens
  }

  absl::Status Init(const Config& config, Watch watch) {
    auto gate = Gate::Open(config, &counters_);
    if (!gate.ok()) return gate.status();
    gate_ = *std::move(gate);
    if (auto s = pipeline_.Open(config, Version()); !s.ok()) return s;
    IngestOptions ingest = IngestOptionsOf(config);
    auto redactor = RedactorOf(config);
    if (!redactor.ok()) return redactor.status();
    ingest.redactor = *std::move(redactor);
    ingest_ = IngestService::Create(ingest, pipeline_.known_streams(), &pipeline_.journal(),
                                    &pipeline_.judge(), gate_.get(), &counters_,
                                    {&pipeline_.capsules(), &pipeline_.stops()});
    run_reader_ = pipeline_.MakeReader(config);
    if (auto s = StartAlerts(config); !s.ok()) return s;
    query_ = QueryService::Create(SourcesOfQueries());
    if (config.reflection) {
      if (auto s = LoadReflection(); !s.ok()) return s;
    }
    if (auto s = Listen(config); !s.ok()) return s;
    WatchHealth(std::move(watch));
    if (config.http == "off") return absl::OkStatus();
    metrics_ = std::make_unique<ServerMetrics>(SourcesOfMetrics(config));
    HttpOptions options;
    options.tls_cert = config.tls_cert;
    options.tls_key = config.tls_key;
    options.admit = [gate = gate_.get()](const HttpCaller& caller) {
      // Without access control, metrics would reveal names of runs to a site that points its name
      // to this host, too.
      if (!gate->guarded()) return CheckScrapeHost(caller.host);
      return gate->AdmitHttp(caller.authorization, caller.session);
    };
    options.open_session = [gate = gate_.get()](std::string_view header) {
      return gate->OpenSession(header);
    };
    options.close_session = [gate = gate_.get()](const std::string& session) {
      gate->CloseSession(session);
    };
    options.session_seconds = static_cast<int>(WebSessions::kSeconds);
    options.counters = &counters_;
    web_ = std::make_unique<WebService>(
        WebSources{SourcesOfQueries(), grpc_address_, !pipeline_.directory().empty()});
    auto http = HttpServer::Start(
        config.http,
        {Version(), [this] { return metrics_->Text(); }, [this] { return health_->Serving(); },
         [this](const WebRequest& request) { return web_->Answer(request); }, WebService::Files()},
        options);
    if (!http.ok()) return http.status();
    http_ = std::move(*http);
    return absl::OkStatus();
  }

  std::string grpc_address() const override { return grpc_address_; }
  std::string http_address() const override { return http_ ? http_->address() : ""; }

  void Reload() override { pipeline_.Reload(); }

  void Stop() override {
    if (grpc_ == nullptr) return;
    StopTimes times;
    http_.reset();
    web_.reset();
    metrics_.reset();
    health_.reset();
    grpc_->GetHealthCheckService()->SetServingStatus(false);
    ingest_->Shutdown();
    query_->Shutdown();
    times.Note("browsers");
    // Peers that read have ended by then; a peer that does not read is cut off.
    grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    times.Note("agents");
    pipeline_.Stop();
    times.Note("judge and files");
    alerts_->Stop();  // also sends alerts for the last findings
    grpc_.reset();
    times.Note("alerts");
    LogDebug("stopped: {}", times.text());
  }

 private:
  QuerySources SourcesOfQueries() {
    QuerySources sources;
    sources.version = Version();
    sources.judge = &pipeline_.judge();
    sources.incident_table = &pipeline_.incident_table();
    sources.counters = &counters_;
    sources.store = &pipeline_.store();
    sources.runs = run_reader_.get();
    sources.capsules = &pipeline_.capsules();
    sources.gate = gate_.get();
    sources.alerts = [alerts = alerts_.get()](const std::string& fingerprint) {
      return alerts->Deliveries(fingerprint);
    };
    sources.update = [judge = &pipeline_.judge()](v1::IncidentUpdate update,
                                                  std::function<void(absl::Status)> done) {
      v1::JudgeEvent event;
      *event.mutable_incident() = std::move(update);
      judge->Decide(std::move(event), std::move(done));
    };
    sources.update_run = [judge = &pipeline_.judge()](const v1::UpdateRunRequest& request,
                                                      const std::string& who,
                                                      std::function<void(absl::Status)> done) {
      judge->UpdateRun(request.run(), request.action(), who, std::move(done));
    };
    return sources;
  }

  absl::Status StartAlerts(const Config& config) {
    AlertOptions options;
    options.config = config.alerts;
    options.path = pipeline_.alert_log();
    options.settled = [judge = &pipeline_.judge()] { return !judge->catching_up(); };
    auto alerts = AlertCenter::Start(std::move(options), &pipeline_.incident_table());
    if (!alerts.ok()) return alerts.status();
    alerts_ = std::move(*alerts);
    return absl::OkStatus();
  }

  void WatchHealth(Watch watch) {
    Health::Sources sources;
    sources.directory = pipeline_.directory();
    sources.journal = [journal = &pipeline_.journal()] { return journal->state(); };
    sources.writing = [journal = &pipeline_.journal()] { return journal->writing_for(); };
    sources.judging = [judge = &pipeline_.judge()] { return judge->judging_for(); };
    sources.changed = [this, reported = std::move(watch.serving)](const absl::Status& serving) {
      grpc_->GetHealthCheckService()->SetServingStatus(serving.ok());
      if (reported) reported(serving);
    };
    if (watch.gets_on) {
      sources.gets_on = std::move(watch.gets_on);
      sources.period = watch.period;
    }
    health_ = std::make_unique<Health>(std::move(sources));
  }

  MetricSources SourcesOfMetrics(const Config& config) {
    MetricSources sources;
    sources.version = Version();
    sources.counters = &counters_;
    sources.judge = &pipeline_.judge();
    sources.incident_table = &pipeline_.incident_table();
    sources.journal = &pipeline_.journal();
    sources.store = &pipeline_.store();
    sources.alerts = alerts_.get();
    sources.serving = [health = health_.get()] { return health->Serving(); };
    sources.checkpointer = pipeline_.checkpointer();
    sources.directory = pipeline_.directory();
    sources.journal_directory = pipeline_.journal_directory();
    sources.certificates = [config] {
      std::vector<MetricSources::Expiry> out;
      for (const CertificateExpiry& one : CertificateExpiries(config)) {
        out.push_back({one.key, one.unix_s});
      }
      return out;
    };
    sources.tokens = [gate = gate_.get()] {
      std::vector<MetricSources::Expiry> out;
      for (const AccessList::Expiry& one : gate->TokenExpiries()) {
        out.push_back({one.entry, one.unix_s});
      }
      return out;
    };
    sources.streams = [ingest = ingest_.get()] { return ingest->connected(); };
    return sources;
  }

  absl::Status Listen(const Config& config) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config.grpc, gate_->ListenerCredentials(config.grpc), &port);
    SetChannelArguments(&builder);
    SetLimits(config, &builder);
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
  std::unique_ptr<Gate> gate_;
  Pipeline pipeline_{&counters_};
  std::unique_ptr<IngestService> ingest_;
  std::unique_ptr<RunReader> run_reader_;
  std::unique_ptr<AlertCenter> alerts_;
  std::unique_ptr<QueryService> query_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<WebService> web_;
  std::unique_ptr<HttpServer> http_;
  std::string grpc_address_;
};

}  // namespace

std::string Version() { return BuildVersion(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  return Start(config, Watch());
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, Watch watch) {
  if (auto s = ValidateConfig(config); !s.ok()) return s;
  auto server = std::make_unique<ServerImpl>();
  if (auto s = server->Init(config, std::move(watch)); !s.ok()) return s;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace plumbline::server

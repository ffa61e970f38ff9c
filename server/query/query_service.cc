#include "server/query/query_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/query.grpc.pb.h"
#include "server/process/grpc_status.h"
#include "server/query/capsule_stream.h"
#include "server/query/pending_calls.h"
#include "server/query/run_stream.h"
#include "server/query/watch_hub.h"
#include "server/query/work_pool.h"

namespace plumbline::server {
namespace {

constexpr int kThreads = 2;

class QueryServiceImpl : public QueryService, public v1::Query::CallbackService {
 public:
  explicit QueryServiceImpl(QuerySources sources)
      : sources_(std::move(sources)),
        started_unix_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count()),
        hub_(sources_.incident_table,
             {[this] { return Deleted(); },
              [this] { return sources_.judge == nullptr ? 0 : sources_.judge->edits(); }}) {
    if (sources_.update == nullptr) {
      sources_.update = [incident_table = sources_.incident_table](
                            const v1::IncidentUpdate& update,
                            const std::function<void(absl::Status)>& done) {
        done(incident_table->Apply(update));
      };
    }
  }

  grpc::Service* service() override { return this; }
  void Shutdown() override {
    stopped_ = true;
    const grpc::Status status{grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
    hub_.EndAll(status);
    pending_.EndAll(status);
  }

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest*,
                                     v1::ListRunsResponse* response) override {
    return Work(context, [this, response, lease = Enter(context)] {
      for (v1::RunInfo& run : sources_.judge->Runs()) {
        if (!lease->Over(Scope::kRead, run.run())) continue;
        sources_.store->FillRun(&run);
        *response->add_runs() = std::move(run);
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListIncidents(grpc::CallbackServerContext* context,
                                          const v1::ListIncidentsRequest* request,
                                          v1::ListIncidentsResponse* response) override {
    const auto lease = Enter(context);
    // The incidents of a deleted run are listed only if the request names the run or an incident.
    const bool named = !request->run().empty() || !request->fingerprint().empty();
    const std::set<std::string> deleted = named ? std::set<std::string>() : Deleted();
    IncidentFilter filter{request->run(), request->rule(), request->min_level(),
                          request->fingerprint(), [&](const std::string& run) {
                            return lease->Over(Scope::kRead, run) && !deleted.contains(run);
                          }};
    if (!request->run().empty()) {
      if (auto s = lease->Check(Scope::kRead, request->run()); !s.ok()) return Done(context, s);
    }
    if (filter.fingerprint.rfind('#', 0) == 0) {  // it is a number
      const auto meant = ResolveFor(*lease, filter.fingerprint);
      if (meant.ok()) filter.fingerprint = *meant;
    }
    for (IncidentTable::Change& i : sources_.incident_table->List(filter)) {
      *response->add_incidents() = std::move(i.incident);
      *response->add_status() = std::move(i.status);
    }
    return Done(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context,
                                         const v1::ListVerdictsRequest* request,
                                         v1::ListVerdictsResponse* response) override {
    if (auto s = CheckNamed(*Enter(context), request->run()); !s.ok()) return Done(context, s);
    *response = sources_.judge->Verdicts(request->run());
    return Done(context, absl::OkStatus());
  }

  grpc::ServerWriteReactor<v1::IncidentEvent>* WatchIncidents(
      grpc::CallbackServerContext* context, const v1::WatchIncidentsRequest* request) override {
    return hub_.Start(*request, Enter(context));
  }

  grpc::ServerUnaryReactor* ListIncidentHistory(
      grpc::CallbackServerContext* context, const v1::ListIncidentHistoryRequest* request,
      v1::ListIncidentHistoryResponse* response) override {
    return Work(context, [this, request, response, lease = Enter(context)] {
      const auto fingerprint = ResolveFor(*lease, request->fingerprint());
      if (!fingerprint.ok()) return fingerprint.status();
      if (auto s = CheckIncident(*lease, Scope::kRead, *fingerprint); !s.ok()) return s;
      if (auto s = Show(*fingerprint, response); !s.ok()) return s;
      auto history = sources_.store->History(*fingerprint);
      if (!history.ok()) return history.status();
      for (v1::IncidentRevision& r : *history) *response->add_revisions() = std::move(r);
      response->set_merged(response->status().revision() -
                           std::min<uint64_t>(response->status().revision(), history->size()));
      if (sources_.alerts == nullptr) return absl::OkStatus();
      for (v1::AlertDelivery& a : sources_.alerts(*fingerprint))
        *response->add_alerts() = std::move(a);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* UpdateRun(grpc::CallbackServerContext* context,
                                      const v1::UpdateRunRequest* request,
                                      v1::UpdateRunResponse* response) override {
    const auto lease = Enter(context);
    const std::string& named = request->has_edit() ? request->edit().run() : request->run();
    const absl::Status status = lease->Check(Scope::kAdmin, named);
    if (!status.ok()) return Done(context, status);
    if (request->has_edit()) return EditRun(context, *lease, request->edit(), response);
    if (sources_.update_run == nullptr) {
      return Done(context, absl::NotFoundError(
                               absl::StrCat("run \"", request->run(), "\" is not in quarantine")));
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto call = pending_.Add(reactor);
    const std::string entry = lease->Names();
    sources_.update_run(*request, entry.empty() ? context->peer() : entry,
                        [this, call](const absl::Status& done) {
                          call->Finish([&] { return ToGrpc(done); });
                          pending_.Remove(call);
                        });
    return reactor;
  }

  grpc::ServerUnaryReactor* EditRun(grpc::CallbackServerContext* context, const Lease& lease,
                                    const v1::RunEdit& edit, v1::UpdateRunResponse* response) {
    const absl::Status status = CheckEditOf(*sources_.judge, edit);
    if (!status.ok()) return Done(context, status);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto call = pending_.Add(reactor);
    sources_.update(RunEdits::UpdateOf(edit, WhoOf(lease, edit.who())),
                    [this, call, response, run = edit.run()](const absl::Status& done) {
                      call->Finish([&] {
                        *response->mutable_labels() = sources_.judge->LabelsOf(run);
                        return ToGrpc(done);
                      });
                      pending_.Remove(call);
                    });
    return reactor;
  }

  grpc::ServerUnaryReactor* UpdateIncident(grpc::CallbackServerContext* context,
                                           const v1::UpdateIncidentRequest* request,
                                           v1::UpdateIncidentResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    v1::IncidentUpdate update = request->update();
    absl::Status status = CheckUpdate(update);
    const auto lease = Enter(context);
    if (status.ok()) {
      const auto fingerprint = ResolveFor(*lease, update.fingerprint());
      status = fingerprint.status();
      if (status.ok()) update.set_fingerprint(*fingerprint);
    }
    if (status.ok()) status = CheckIncident(*lease, Scope::kAdmin, update.fingerprint());
    // The caller chooses the name; the access entry is verified.
    update.set_who(WhoOf(*lease, update.who()));
    if (!status.ok()) {
      reactor->Finish(ToGrpc(status));
      return reactor;
    }
    const auto call = pending_.Add(reactor);
    sources_.update(update,
                    [this, call, response, fingerprint = update.fingerprint()](absl::Status done) {
                      call->Finish([&] {
                        if (done.ok()) done = Show(fingerprint, response);
                        return ToGrpc(done);
                      });
                      pending_.Remove(call);
                    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ListSeries(grpc::CallbackServerContext* context,
                                       const v1::ListSeriesRequest* request,
                                       v1::ListSeriesResponse* response) override {
    return Work(context, [this, request, response, lease = Enter(context)] {
      if (auto s = lease->Check(Scope::kRead, request->run()); !s.ok()) return s;
      return sources_.store->ListSeries(*request, response);
    });
  }

  grpc::ServerUnaryReactor* QuerySeries(grpc::CallbackServerContext* context,
                                        const v1::QuerySeriesRequest* request,
                                        v1::QuerySeriesResponse* response) override {
    return Work(context, [this, request, response, lease = Enter(context)] {
      if (auto s = lease->Check(Scope::kRead, request->run()); !s.ok()) return s;
      return sources_.store->QuerySeries(*request, response);
    });
  }

  grpc::ServerWriteReactor<v1::ReadRunResponse>* ReadRun(
      grpc::CallbackServerContext* context, const v1::ReadRunRequest* request) override {
    auto stream = std::make_shared<RunStream>(request->run(), sources_.version, sources_.runs,
                                              &pool_, &stopped_, Enter(context));
    stream->Begin();
    return stream.get();
  }

  grpc::ServerUnaryReactor* ListCapsules(grpc::CallbackServerContext* context,
                                         const v1::ListCapsulesRequest* request,
                                         v1::ListCapsulesResponse* response) override {
    const auto lease = Enter(context);
    if (!request->run().empty()) {
      if (auto s = lease->Check(Scope::kRead, request->run()); !s.ok()) return Done(context, s);
    }
    if (sources_.capsules != nullptr) {
      for (v1::CapsuleInfo& info :
           sources_.capsules->List(request->run(), request->fingerprint())) {
        if (!lease->Over(Scope::kRead, info.finding().site().run())) continue;
        *response->add_capsules() = std::move(info);
      }
    }
    return Done(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* RequestCapsule(grpc::CallbackServerContext* context,
                                           const v1::RequestCapsuleRequest* request,
                                           v1::RequestCapsuleResponse* response) override {
    const auto lease = Enter(context);
    const auto found = FindingOf(*lease, request->fingerprint());
    if (!found.ok()) return Done(context, found.status());
    // Requires admin, because it changes what the trainers' agents do.
    const std::string incident = sources_.incident_table->IncidentOf(found->fingerprint());
    if (auto s = CheckIncident(*lease, Scope::kAdmin, incident); !s.ok()) {
      return Done(context, s);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto call = pending_.Add(reactor);
    sources_.capsules->Request(*found, request->anew(),
                               [this, call, response](absl::StatusOr<v1::CapsuleInfo> info) {
                                 call->Finish([&] {
                                   if (!info.ok()) return ToGrpc(info.status());
                                   *response->mutable_capsule() = *std::move(info);
                                   return grpc::Status::OK;
                                 });
                                 pending_.Remove(call);
                               });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::GetCapsuleResponse>* GetCapsule(
      grpc::CallbackServerContext* context, const v1::GetCapsuleRequest* request) override {
    auto stream = std::make_shared<CapsuleStream>(request->fingerprint(), sources_.capsules,
                                                  Enter(context), &pool_, &stopped_);
    stream->Begin();
    return stream.get();
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* info) override {
    const Counters& counters = *sources_.counters;
    info->set_version(sources_.version);
    info->set_protocol(1);
    info->set_started_unix_ns(started_unix_ns_);
    info->set_batches(counters.batches);
    info->set_evidence(counters.evidence);
    info->set_streams(counters.streams);
    info->set_duplicates(counters.duplicates);
    info->set_out_of_order(counters.out_of_order);
    info->set_paused_reads(counters.paused_reads);
    info->set_stopped_ahead(counters.stopped_ahead);
    info->set_catching_up(sources_.judge != nullptr && sources_.judge->catching_up());
    auto& dropped = *info->mutable_dropped();
    dropped["rejected-batches"] = counters.rejected_batches;
    dropped["damaged-batches"] = counters.damaged_batches;
    dropped["rejected-evidence"] = counters.rejected_evidence;
    dropped["engine-refused"] = counters.engine_refused;
    dropped["skipped-batches"] = counters.skipped_batches;
    dropped["capsule-parts"] = counters.capsule_parts_dropped;
    dropped["capsules-not-taken"] = counters.capsules_not_taken;
    dropped["calls-unauthenticated"] = counters.unauthenticated;
    dropped["calls-forbidden"] = counters.forbidden;
    dropped["calls-revoked"] = counters.revoked_calls;
    dropped["refused-runs"] = counters.refused_runs;
    dropped["waited-hellos"] = counters.waited_hellos;
    dropped["slow-hellos"] = counters.slow_hellos;
    dropped["http-refused"] = counters.http_refused;
    dropped["http-slow"] = counters.http_slow;
    dropped["http-dropped"] = counters.http_dropped;
    dropped["broken-streams"] = counters.broken_streams;
    *info->mutable_store() = sources_.store->Info();
    return Done(context, absl::OkStatus());
  }

 private:
  std::set<std::string> Deleted() const {
    return sources_.judge != nullptr ? sources_.judge->DeletedRuns() : std::set<std::string>();
  }

  std::shared_ptr<Lease> Enter(grpc::CallbackServerContext* context) {
    return sources_.gate == nullptr ? Lease::ForEverything() : sources_.gate->Enter(*context);
  }

  // An answer about all runs requires read access to all of them.
  static absl::Status CheckNamed(const Lease& lease, const std::string& run) {
    if (!run.empty() || lease.Everywhere(Scope::kRead)) return lease.Check(Scope::kRead, run);
    return absl::PermissionDeniedError(
        absl::StrCat("the access entry ", lease.Names(),
                     " does not grant read over every run: name one (--run)"));
  }

  // Resolves a name. Incidents of runs for which the caller has no scope are treated as missing,
  // because another answer would reveal that they exist.
  absl::StatusOr<std::string> ResolveFor(const Lease& lease, const std::string& prefix) const {
    return sources_.incident_table->Resolve(prefix, SeenBy(lease));
  }
  static IncidentTable::Visible SeenBy(const Lease& lease) {
    return [&lease](const std::string& run) {
      return lease.Over(Scope::kRead, run) || lease.Over(Scope::kAdmin, run);
    };
  }

  // Does not name the run in the error, because the caller may not know of it.
  absl::Status CheckIncident(const Lease& lease, Scope scope,
                             const std::string& fingerprint) const {
    const auto change = sources_.incident_table->Get(fingerprint);
    if (!change.ok() || lease.Over(scope, change->incident.finding().site().run())) {
      return change.status();
    }
    return absl::PermissionDeniedError(absl::StrCat("the access entry ", lease.Names(),
                                                    " does not grant ", ScopeName(scope),
                                                    " over the run of this incident"));
  }

  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  // Runs `work` on the pool. The request and response live until the call is finished.
  grpc::ServerUnaryReactor* Work(grpc::CallbackServerContext* context,
                                 std::function<absl::Status()> work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    pool_.Submit([this, reactor, work = std::move(work)] {
      reactor->Finish(
          stopped_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down")
                   : ToGrpc(work()));
    });
    return reactor;
  }

  absl::StatusOr<v1::Finding> FindingOf(const Lease& lease, const std::string& prefix) const {
    if (sources_.capsules == nullptr)
      return absl::FailedPreconditionError("this server has no capsules");
    return sources_.incident_table->FindingOf(prefix, SeenBy(lease));
  }

  template <typename Response>
  absl::Status Show(const std::string& fingerprint, Response* response) const {
    auto change = sources_.incident_table->Get(fingerprint);
    if (!change.ok()) return change.status();
    *response->mutable_incident() = std::move(change->incident);
    *response->mutable_status() = std::move(change->status);
    return absl::OkStatus();
  }

  QuerySources sources_;
  const int64_t started_unix_ns_;
  std::atomic<bool> stopped_{false};
  WatchHub hub_;
  PendingCalls pending_;
  WorkPool pool_{kThreads};  // destroyed first: its work uses the members above
};

}  // namespace

std::unique_ptr<QueryService> QueryService::Create(QuerySources sources) {
  return std::make_unique<QueryServiceImpl>(std::move(sources));
}

}  // namespace plumbline::server

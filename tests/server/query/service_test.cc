// The query service alone: with an incident table, a store and a journal of the test.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "audit/live/client.h"
#include "audit/live/doctor_batch.h"
#include "plumbline/v1/query.grpc.pb.h"
#include "server/query/query_service.h"
#include "tests/server/store/support.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A journal of one run.
class FakeJournal : public server::RunReader {
 public:
  absl::StatusOr<std::unique_ptr<server::RunCursor>> Read(const std::string& run) override {
    if (run != run_) return absl::NotFoundError("nothing of run " + run);
    return std::make_unique<Cursor>(this);
  }

  v1::ReadRunItem* Add() {
    items.emplace_back().set_entry(items.size());
    header.set_newest_entry(items.size());
    return &items.back();
  }

  std::string run_ = "r";
  v1::ReadRunHeader header;
  std::vector<v1::ReadRunItem> items;
  absl::Status end;

 private:
  class Cursor : public server::RunCursor {
   public:
    explicit Cursor(const FakeJournal* journal) : journal_(journal) {}
    const v1::ReadRunHeader& header() const override { return journal_->header; }
    absl::StatusOr<bool> Next(v1::ReadRunItem* item) override {
      if (next_ == journal_->items.size()) {
        if (!journal_->end.ok()) return journal_->end;
        return false;
      }
      *item = journal_->items[next_++];
      return true;
    }

   private:
    const FakeJournal* journal_;
    size_t next_ = 0;
  };
};

// A server with only the query service.
class Service {
 public:
  Service(server::IncidentTable* incident_table, server::Store* store, server::RunReader* runs) {
    server::QuerySources sources;
    sources.version = "1.2.3";
    sources.incident_table = incident_table;
    sources.counters = &counters_;
    sources.store = store;
    sources.runs = runs;
    service_ = server::QueryService::Create(std::move(sources));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_->service());
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Service() {
    service_->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }
  const std::string& address() const { return address_; }

 private:
  server::Counters counters_;
  std::unique_ptr<server::QueryService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

v1::Finding Found(const std::string& fingerprint, int64_t step = 0,
                  v1::Level level = v1::LEVEL_WARNING) {
  v1::Finding f;
  f.set_fingerprint(fingerprint);
  f.set_rule("health/" + fingerprint);
  f.set_level(level);
  f.mutable_site()->set_run("r");
  f.mutable_site()->set_step_last(step);
  return f;
}

class QueryServiceTest : public testing::Test {
 protected:
  QueryServiceTest() {
    auto store = server::Store::Open({});
    EXPECT_TRUE(store.ok());
    store_ = std::move(*store);
    incident_table_.SetOnRevision(
        [this](const std::string& fingerprint, const v1::IncidentRevision& r) {
          store_->AddRevision(fingerprint, r);
        });
  }

  // Returns the events of a watch until it has caught up: "opened a", ...
  static std::vector<std::string> Watched(const Service& service,
                                          v1::WatchIncidentsRequest* request) {
    audit::Client client(service.address());
    std::vector<std::string> stated;
    const absl::Status status = client.Watch(*request, [&](const v1::IncidentEvent& event) {
      request->set_after_position(event.position());
      request->set_book(event.book());
      if (event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP) return false;
      stated.push_back(v1::IncidentEvent::Kind_Name(event.kind()).substr(5) + " " +
                       event.incident().finding().fingerprint());
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return stated;
  }

  server::IncidentTable incident_table_{[] { return 1; }, 50};
  std::unique_ptr<server::Store> store_;
  FakeJournal journal_;
};

TEST_F(QueryServiceTest, AWatchGoesOnWhereItBrokeOff) {
  v1::WatchIncidentsRequest request;
  incident_table_.Put(Found("aaaa"), 1);
  incident_table_.Put(Found("bbbb"), 1);
  {
    const Service service(&incident_table_, store_.get(), nullptr);
    EXPECT_THAT(Watched(service, &request), ElementsAre("EXISTING aaaa", "EXISTING bbbb"));
    EXPECT_THAT(Watched(service, &request), ElementsAre());
    incident_table_.Put(Found("aaaa", 3), 2);
    incident_table_.Put(Found("cccc", 3), 1);
    EXPECT_THAT(Watched(service, &request), ElementsAre("UPDATED aaaa", "OPENED cccc"));
  }
  incident_table_.StepClosed("r", 52);
  const Service again(&incident_table_, store_.get(), nullptr);
  EXPECT_THAT(Watched(again, &request), ElementsAre("RESOLVED bbbb"));
  EXPECT_THAT(Watched(again, &request), ElementsAre());
  // Positions of another incident table have no meaning here; resolved incidents are not sent.
  request.set_book("another");
  EXPECT_THAT(Watched(again, &request), ElementsAre("EXISTING aaaa", "EXISTING cccc"));
  v1::WatchIncidentsRequest filtered;
  filtered.set_rule("*/c*");
  EXPECT_THAT(Watched(again, &filtered), ElementsAre("EXISTING cccc"));
}

// Tests every position as the last one seen.
TEST_F(QueryServiceTest, AWatchThatBreaksAnywhereMissesNothing) {
  const Service service(&incident_table_, store_.get(), nullptr);
  for (int i = 0; i < 5; ++i) incident_table_.Put(Found("aaa" + std::to_string(i)), 1);
  for (int broken_after = 1; broken_after <= 5; ++broken_after) {
    audit::Client client(service.address());
    v1::WatchIncidentsRequest request;
    std::multiset<std::string> seen;
    int left = broken_after;
    const auto take = [&](const v1::IncidentEvent& event) {
      request.set_after_position(event.position());
      request.set_book(event.book());
      if (event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP) return false;
      seen.insert(event.incident().finding().fingerprint());
      return --left > 0;
    };
    ASSERT_TRUE(client.Watch(request, take).ok());
    left = 100;
    ASSERT_TRUE(client.Watch(request, take).ok());
    EXPECT_THAT(seen, ElementsAre("aaa0", "aaa1", "aaa2", "aaa3", "aaa4")) << broken_after;
  }
}

TEST_F(QueryServiceTest, UpdatesAndTheirHistory) {
  const Service service(&incident_table_, store_.get(), nullptr);
  audit::Client client(service.address());
  incident_table_.Put(Found("abcdef", 10), 1);
  incident_table_.Put(Found("abcdef", 11), 2);
  v1::IncidentUpdate update;
  update.set_fingerprint("abcd");
  update.set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  update.set_who("ann");
  EXPECT_EQ(client.Update(update, 30).status().code(), absl::StatusCode::kInvalidArgument);
  update.set_reason("known");
  const auto updated = client.Update(update, 30);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->incident().state(), v1::Incident::STATE_ACKNOWLEDGED);
  EXPECT_EQ(updated->status().who(), "ann");
  incident_table_.StepClosed("r", 100);
  ASSERT_TRUE(store_->WaitFlushed(store_->Flush(), kPatience));
  const auto history = client.History("abcd", 30);
  ASSERT_TRUE(history.ok()) << history.status();
  std::vector<v1::IncidentRevision::Change> changes;
  for (const auto& r : history->revisions()) changes.push_back(r.change());
  EXPECT_THAT(changes, ElementsAre(v1::IncidentRevision::CHANGE_OPENED,
                                   v1::IncidentRevision::CHANGE_ACKNOWLEDGED,
                                   v1::IncidentRevision::CHANGE_RESOLVED));
  EXPECT_EQ(history->merged(), 1u);
  EXPECT_EQ(client.History("ffff", 30).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(QueryServiceTest, SeriesOverTheWire) {
  const Service service(&incident_table_, store_.get(), nullptr);
  audit::Client client(service.address());
  const auto columns = ColumnsOf({"loss", "layers.0/grad"});
  for (int64_t step = 0; step < 100; ++step) {
    store_->Judged(static_cast<uint64_t>(step) + 1);
    Feed(store_.get(), static_cast<uint64_t>(step) + 1, "r", step, columns,
         {{0, 1}, {1.0 * step, 2.0, 3.0 * step, 4.0}, {}});
    store_->EndEntry("r");
  }
  v1::QuerySeriesRequest request;
  request.set_run("r");
  request.set_series("loss");
  request.set_last_steps(2);
  const auto answer = client.QuerySeries(request, 30);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->series_size(), 1);
  EXPECT_THAT(answer->series(0).step(), ElementsAre(98, 99));
  EXPECT_THAT(answer->series(0).mean(), ElementsAre(98, 99, 294, 297));
  v1::ListSeriesRequest list;
  list.set_run("r");
  EXPECT_EQ(client.ListSeries(list, 30)->series_size(), 2);
  list.set_run("none");
  EXPECT_EQ(client.ListSeries(list, 30).status().code(), absl::StatusCode::kNotFound);

  const auto plumb = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {PLUMB_PROGRAM, "query", "series", "--run", "r", "--server", service.address()});
    const Ended ended = RunToEnd(words);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    return ended.output;
  };
  EXPECT_THAT(plumb({}), testing::AllOf(HasSubstr("layers.0/grad"), HasSubstr("200 values")));
  EXPECT_EQ(plumb({"loss", "--last", "1", "--format", "csv"}),
            "series,role,attempt,rank,step,bucket_steps,mean,min,max,count,non_finite\n"
            "loss,trainer,0,0,99,1,99,,,,\nloss,trainer,0,1,99,1,297,,,,\n");
  const auto json =
      nlohmann::json::parse(plumb({"loss", "--over-ranks", "--cells", "1", "--format", "json"}));
  EXPECT_EQ(json["max"][0][0], 297);
  EXPECT_EQ(json["count"][0][0], 200);
}

TEST_F(QueryServiceTest, ARunIsAuditedAsTheJournalHoldsIt) {
  const v1::Source source = SourceOf("r", 0, 2);
  v1::Batch batch = LeakingStep(source, 0);
  *batch.add_sources() = SourceOf("other");  // a process may report for several runs
  *batch.add_evidence() = batch.evidence(0);
  batch.mutable_evidence(1)->set_source(1);
  journal_.Add()->set_batch(batch.SerializeAsString());
  *journal_.Add()->mutable_event()->mutable_ranks_gone()->add_sources() = SourceOf("r", 1, 2);
  journal_.Add()->set_batch(LeakingStep(source, 1).SerializeAsString());
  journal_.Add()->mutable_event()->mutable_run_finished()->set_run("r");
  journal_.header.set_judged_entry(2);
  v1::Gap* gap = journal_.header.add_gaps();
  gap->set_step_last(7);
  gap->set_items(5);
  gap->set_reason("retention: older than journal.keep");
  const Service service(&incident_table_, store_.get(), &journal_);
  const auto audit = [&](std::vector<std::string> words) {
    words.insert(words.begin(),
                 {PLUMB_PROGRAM, "audit", "--server", service.address(), "--format", "json"});
    return RunToEnd(words);
  };
  const auto found = audit({"--run", "r"});
  EXPECT_EQ(found.status, 1) << found.errors;
  const auto report = nlohmann::json::parse(found.output);
  ASSERT_EQ(report["findings"].size(), 1u);
  EXPECT_EQ(report["findings"][0]["rule"], audit::kDoctorRule);
  EXPECT_EQ(report["findings"][0]["site"]["step_last"], 1);
  for (const auto& verdict : report["verdicts"]) EXPECT_EQ(verdict["site"]["run"], "r");
  const auto& input = report["inputs"][0];
  EXPECT_EQ(input["path"], service.address() + "/r");
  EXPECT_EQ(input["records"], 2);
  ASSERT_EQ(input["problems"].size(), 2u);
  EXPECT_THAT(input["problems"][0].get<std::string>(), HasSubstr("steps 0 to 7"));
  EXPECT_THAT(input["problems"][1].get<std::string>(),
              HasSubstr("not yet judged the last 1 of them"));

  const auto unknown = audit({"--run", "x"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("nothing of run x"));
  EXPECT_EQ(audit({}).status, 2);

  // Settings in the command are added to those of the server, and do not replace them.
  journal_.header.add_settings(std::string(audit::kDoctorRule) + ".nonsense=1");
  const auto both = audit({"--run", "r", "--set", "drift/logit-drift.alpha=0.01"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.errors, HasSubstr("nonsense"));
  EXPECT_EQ(audit({"--run", "r", "--rules", "drift/*"}).errors, "");
  journal_.header.clear_settings();

  journal_.end = absl::DataLossError("journal/1.plj: byte 9: expected a frame");
  const auto damaged = audit({"--run", "r"});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.output, HasSubstr("byte 9"));
  const Service without(&incident_table_, store_.get(), nullptr);
  const Ended nothing =
      RunToEnd({PLUMB_PROGRAM, "audit", "--server", without.address(), "--run", "r"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.errors, HasSubstr("--data DIR"));
}

}  // namespace
}  // namespace plumbline::test

// The page's lists of one run: its ranks by host, its series by group, and what people add to runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "audit/live/client.h"
#include "server/incidents/run_edits.h"
#include "tests/server/web/web_fixture.h"

namespace plumbline::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kSame[] = "Sec-Fetch-Site: same-origin\r\n";

class RunLists : public WebTest {
 protected:
  Answer Edit(const std::string& run, const json& edit, const std::string& headers = kSame) {
    return Send("POST", "/api/v1/runs/" + run + "/labels",
                "Plumbline-Update: " + Encoded(edit.dump()) + "\r\n" + headers);
  }
  json LabelsOf(const std::string& run) {
    const json all = Get("runs").value();
    for (const json& row : all.value("runs", json::array())) {
      if (row["run"] == run) return row["labels"];
    }
    return json::object();
  }
  Ended Plumb(std::vector<std::string> words) {
    words.insert(words.begin(), PLUMB_PROGRAM);
    words.insert(words.end(), {"--server", server_->address()});
    return RunToEnd(words);
  }
  // Sends a run whose only process ends.
  void OverRun(const std::string& run, uint64_t stream) {
    AgentStream agent(*server_, stream, {SourceOf(run, 0, 1)});
    v1::Batch batch = LeakingStep(SourceOf(run, 0, 1), 0);
    AddProgress(&batch, 0).set_finished(true);
    agent.Send(batch, 1);
    ASSERT_TRUE(agent.Acknowledged(1));
    (void)agent.Finish();
    ASSERT_TRUE(Eventually([&] { return Get("runs/" + run).value().value("connected", 1) == 0; }));
  }
};

TEST_F(RunLists, RanksAreByHostAndMissingOnesAreRanges) {
  Start();
  std::vector<v1::Source> sources;
  for (const uint32_t rank : {0U, 1U, 2U, 5U}) {
    sources.push_back(SourceOf("run", rank, 8));
    sources.back().set_host(rank < 2 ? "node0" : "node1");
  }
  AgentStream agent(*server_, 1, sources);
  v1::Batch batch;
  for (const v1::Source& source : sources) *batch.add_sources() = source;
  for (uint32_t i = 0; i < sources.size(); ++i) {
    for (int64_t step = 0; step < 20; ++step)
      AddScalar(&batch, "step_seconds", step, i == 3 ? 4 : 2).set_source(i);
    v1::Progress& progress = AddProgress(&batch, 19);
    progress.set_source(i);
  }
  agent.Send(batch, 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  json ranks;
  ASSERT_TRUE(Eventually([&] {
    ranks = Get("runs/run/ranks?series=step_seconds").value();
    return ranks["rank"].size() == 4 && ranks["value"][3] == 4;
  })) << ranks.dump();
  EXPECT_EQ(ranks["world"], 8);
  EXPECT_EQ(ranks["missing"], 4);
  EXPECT_EQ(ranks["missing_ranges"], json::parse("[[3,4],[6,7]]"));
  EXPECT_EQ(ranks["hosts"], json::parse(R"(["node0","node1"])"));
  EXPECT_EQ(ranks["host"], json::parse("[0,0,1,1]"));
  EXPECT_EQ(ranks["value"], json::parse("[2,2,2,4]"));
  EXPECT_EQ(ranks["state"][0], "connected");
  // Without a series, or with one that does not exist, no rank has a value.
  for (const char* path : {"runs/run/ranks", "runs/run/ranks?series=none"})
    EXPECT_EQ(Get(path).value()["value"], json::parse("[null,null,null,null]")) << path;
  EXPECT_EQ(Get("runs/other/ranks").status, 404);
}

TEST_F(RunLists, SeriesAreGroupedByTheirPrefixAndTheLossIsFirst) {
  Start();
  AgentStream agent(*server_, 1, {SourceOf("run", 0, 1)});
  v1::Batch batch = BatchOf(SourceOf("run", 0, 1));
  for (const char* name : {"a/b/x", "a/b/y", "a/z", "train/loss", "train/grad_norm", "train/lr",
                           "train/speed_of_it", "eval/math/loss"})
    AddScalar(&batch, name, 0, 1);
  AddProgress(&batch, 0);
  agent.Send(batch, 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  json groups;
  ASSERT_TRUE(Eventually([&] {
    groups = Get("runs/run/series").value().value("groups", json::array());
    return groups.size() > 1;
  }));
  std::map<std::string, std::vector<std::string>> names;
  for (const json& group : groups) {
    for (const json& one : group["series"]) names[group["group"]].push_back(one["series"]);
  }
  EXPECT_EQ(groups[0]["group"], "Loss and schedule");
  EXPECT_THAT(names["Loss and schedule"], ElementsAre("train/loss", "train/lr", "train/grad_norm"));
  EXPECT_THAT(names["a/b"], ElementsAre("a/b/x", "a/b/y"));
  EXPECT_THAT(names["a"], ElementsAre("a/z"));
  EXPECT_THAT(names["train"], ElementsAre("train/speed_of_it"));
  EXPECT_THAT(names["eval/math"], ElementsAre("eval/math/loss"));
}

TEST_F(RunLists, EditsOfARunOutliveTheServer) {
  const std::vector<std::string> options = {"--http", "127.0.0.1:0", "--data",
                                            folder_.File("data")};
  server_ = StartWith(folder_, "", options);
  http_ = HttpAddress(*server_);
  OverRun("exp1", 1);
  const Answer tagged =
      Edit("exp1", {{"add_tags", {"b", "a"}}, {"note", "a <b>note</b>"}, {"who", "me"}});
  EXPECT_EQ(tagged.status, 200) << tagged.body;
  EXPECT_EQ(tagged.value()["tags"], json::parse(R"(["a","b"])"));
  EXPECT_EQ(Edit("exp1", {{"remove_tags", {"b"}}, {"name", "the best"}}).status, 200);
  EXPECT_EQ(Edit("exp1", {{"archived", true}}).status, 200);
  server_->process().Signal(SIGKILL);
  server_->process().Wait();
  server_ = StartWith(folder_, "", options);
  http_ = HttpAddress(*server_);
  ASSERT_TRUE(Eventually([&] { return LabelsOf("exp1").value("archived", false); }));
  const json labels = LabelsOf("exp1");
  EXPECT_EQ(labels["tags"], json::parse(R"(["a"])"));
  EXPECT_EQ(labels["note"], "a <b>note</b>");
  EXPECT_EQ(labels["name"], "the best");
  EXPECT_EQ(Edit("exp1", {{"undo", true}}).value()["archived"], false);
  EXPECT_EQ(Edit("exp1", {{"undo", true}}).value()["tags"], json::parse(R"(["a","b"])"));
}

TEST_F(RunLists, ADeletedRunIsHiddenWithItsIncidentsUntilItIsRestored) {
  Start();
  OverRun("exp1", 1);
  ASSERT_TRUE(Eventually([&] { return !Get("incidents").value()["incidents"].empty(); }));
  EXPECT_EQ(Edit("exp1", {{"deleted", true}}).status, 200);
  EXPECT_TRUE(Get("incidents").value()["incidents"].empty());
  EXPECT_THAT(Plumb({"watch", "--once"}).output, testing::Not(HasSubstr("moe-future-leak")));
  EXPECT_THAT(Plumb({"query"}).output, testing::Not(HasSubstr("moe-future-leak")));
  EXPECT_THAT(Plumb({"query", "--run", "exp1"}).output, HasSubstr("moe-future-leak"));
  EXPECT_TRUE(LabelsOf("exp1")["deleted"]);
  EXPECT_THAT(Plumb({"runs"}).output, testing::Not(HasSubstr("exp1")));
  EXPECT_THAT(Plumb({"runs", "--all"}).output, HasSubstr("deleted: plumb run-edit RUN --undo"));
  const Ended undone = Plumb({"run-edit", "exp1", "--undo"});
  EXPECT_EQ(undone.status, 0) << undone.output;
  EXPECT_FALSE(Get("incidents").value()["incidents"].empty());
  const Ended edited = Plumb({"run-edit", "exp1", "--tag", "good", "--tag", "x", "--note", "why"});
  EXPECT_THAT(edited.output, HasSubstr("  tags: good x\n  note: why\n"));
  EXPECT_THAT(Plumb({"runs", "--tag", "good"}).output, HasSubstr("exp1"));
  EXPECT_THAT(Plumb({"runs", "--tag", "bad"}).output, HasSubstr("no runs"));
  EXPECT_EQ(Plumb({"run-edit", "none", "--tag", "x"}).status, 2);
  EXPECT_EQ(Plumb({"run-edit", "exp1"}).status, 2);
}

// A watch in progress gets an event for each incident that it has sent.
TEST_F(RunLists, TheIncidentsOfADeletedRunLeaveTheWatch) {
  Start();
  OverRun("exp1", 1);
  ASSERT_TRUE(Eventually([&] { return !Get("incidents").value()["incidents"].empty(); }));
  audit::Client client(server_->address());
  std::vector<v1::IncidentEvent::Kind> kinds;
  bool edited = false;
  const absl::Status status = client.Watch({}, [&](const v1::IncidentEvent& event) {
    if (event.has_incident() || event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP)
      kinds.push_back(event.kind());
    if (event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP && !std::exchange(edited, true)) {
      EXPECT_EQ(Edit("exp1", {{"deleted", true}}).status, 200);
    } else if (event.kind() == v1::IncidentEvent::KIND_LEFT) {
      EXPECT_EQ(Edit("exp1", {{"undo", true}}).status, 200);
    }
    return event.kind() != v1::IncidentEvent::KIND_OPENED;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(kinds,
              ElementsAre(v1::IncidentEvent::KIND_EXISTING, v1::IncidentEvent::KIND_CAUGHT_UP,
                          v1::IncidentEvent::KIND_LEFT, v1::IncidentEvent::KIND_OPENED));
}

// The owner is the process's user, or the tag of a person.
TEST_F(RunLists, RunsHaveOwners) {
  Start();
  v1::Source source = SourceOf("exp1", 0, 1);
  source.set_user("ann<b>");
  AgentStream agent(*server_, 1, {source});
  v1::Batch batch = LeakingStep(source, 0);
  AddProgress(&batch, 0);
  agent.Send(batch, 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  Leak("exp2", 2);
  const auto owner = [&](const std::string& run) {
    const json all = Get("runs").value();
    for (const json& row : all.value("runs", json::array())) {
      if (row["run"] == run) return row["owner"].get<std::string>();
    }
    return std::string("?");
  };
  ASSERT_TRUE(Eventually([&] { return owner("exp1") == "ann<b>" && owner("exp2").empty(); }));
  EXPECT_EQ(Edit("exp2", {{"add_tags", {"owner:bob"}}}).status, 200);
  EXPECT_EQ(owner("exp2"), "bob");
  EXPECT_THAT(Plumb({"runs", "--filter", "owner:ann"}).output,
              AllOf(HasSubstr("exp1"), HasSubstr("ann<b>"), testing::Not(HasSubstr("exp2"))));
  EXPECT_THAT(Plumb({"runs", "--filter", "owner:bob"}).output, HasSubstr("exp2"));
  EXPECT_THAT(Plumb({"runs", "--filter", "owner:eve"}).output, HasSubstr("no runs"));
  EXPECT_EQ(Edit("exp1", {{"add_tags", {"owner:carl"}}}).status, 200);
  EXPECT_EQ(owner("exp1"), "carl");
}

TEST_F(RunLists, ARunWithConnectedRanksIsNotDeleted) {
  Start();
  Leak("live", 1);
  const Answer refused = Edit("live", {{"deleted", true}});
  EXPECT_EQ(refused.status, 413) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("1 ranks of it are connected"));
  EXPECT_EQ(Edit("live", {{"archived", true}}).status, 200);
}

TEST_F(RunLists, OnlyAnAdminOfTheRunMayEditIt) {
  const TestToken admin = NewToken(folder_, "admin"), reader = NewToken(folder_, "reader"),
                  agent = NewToken(folder_, "agent");
  Start(Entry("admin", admin.line, "['read', 'admin', 'write']") +
        Entry("reader", reader.line, "['read']"));
  AgentStream stream(ChannelTo(server_->address(), {.token_file = admin.file}), 1,
                     {SourceOf("run", 0, 1)});
  ASSERT_TRUE(stream.Welcomed());
  ASSERT_TRUE(Eventually([&] { return Get("runs/run", Bearer(admin)).status == 200; }));
  const json edit = {{"add_tags", {"x"}}, {"who", "me"}};
  EXPECT_EQ(Edit("run", edit).status, 401);
  EXPECT_EQ(Edit("run", edit, kSame + Bearer(reader)).status, 403);
  EXPECT_EQ(Edit("run", edit, "Origin: http://evil.example\r\n" + Bearer(admin)).status, 403);
  const Answer done = Edit("run", edit, kSame + Bearer(admin));
  EXPECT_EQ(done.value()["who"], "me (admin)") << done.body;
  EXPECT_EQ(Edit("run", json::array(), kSame + Bearer(admin)).status, 400);
  EXPECT_EQ(Edit("run", {{"add_tags", {std::string(65, 'x')}}}, kSame + Bearer(admin)).status, 400);
}

TEST(RunEdits, AnEditIsCheckedAndUndone) {
  using server::CheckEdit;
  using server::RunEdits;
  v1::RunEdit edit;
  edit.set_run("r");
  EXPECT_FALSE(CheckEdit(edit).ok());
  edit.set_undo(true);
  EXPECT_TRUE(CheckEdit(edit).ok());
  edit.set_archived(false);
  EXPECT_FALSE(CheckEdit(edit).ok());
  edit.clear_undo();
  EXPECT_TRUE(CheckEdit(edit).ok());
  edit.set_note(std::string(4097, 'x'));
  EXPECT_FALSE(CheckEdit(edit).ok());

  RunEdits edits;
  for (int i = 0; i < 100; ++i) {
    v1::RunEdit tag;
    tag.set_run("r");
    tag.add_add_tags(std::to_string(i));
    const auto read = RunEdits::EditOf(RunEdits::UpdateOf(tag, "me"));
    ASSERT_TRUE(read.has_value());
    edits.Apply(*read, "me", i);
  }
  EXPECT_EQ(edits.Of("r").tags_size(), 32) << "bounded";
  v1::RunEdit undo;
  undo.set_run("r");
  undo.set_undo(true);
  for (int i = 0; i < 100; ++i) edits.Apply(undo, "me", 0);
  EXPECT_EQ(edits.Of("r").tags_size(), 32) << "only the last 16 edits can be undone";
  EXPECT_EQ(edits.Of("other").tags_size(), 0);
  v1::IncidentUpdate other;
  other.set_fingerprint("quarantine:r");
  EXPECT_FALSE(RunEdits::EditOf(other).has_value());
  other.set_fingerprint("run:r");
  other.set_reason("not base64!");
  EXPECT_FALSE(RunEdits::EditOf(other).has_value());
}

}  // namespace
}  // namespace plumbline::test

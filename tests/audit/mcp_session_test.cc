// The Model Context Protocol without its streams: versions, methods, errors by code, hostile
// clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "audit/mcp/arguments.h"
#include "audit/mcp/fit.h"
#include "audit/mcp/line_reader.h"
#include "audit/mcp/session.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit::mcp {
namespace {

using ::testing::HasSubstr;

// A client of one session. Send returns the messages that the session sent during the call.
class McpSession : public ::testing::Test {
 protected:
  std::vector<Json> Send(const std::string& line) {
    sent_.clear();
    session_.Take(line);
    return sent_;
  }
  Json One(const std::string& line) {
    const std::vector<Json> sent = Send(line);
    EXPECT_EQ(sent.size(), 1u) << line;
    return sent.empty() ? Json() : sent[0];
  }
  Json Query(const std::string& method, const Json& params = Json::object()) {
    Json request = {{"jsonrpc", "2.0"}, {"id", ++id_}, {"method", method}};
    request["params"] = params;
    const Json answer = One(request.dump());
    EXPECT_EQ(answer["jsonrpc"], "2.0");
    EXPECT_EQ(answer["id"], id_);
    return answer;
  }
  Json Begin(const std::string& version = "2025-06-18") {
    return Query("initialize", {{"protocolVersion", version},
                                {"capabilities", Json::object()},
                                {"clientInfo", {{"name", "test"}, {"version", "1"}}}});
  }
  Json Call(const std::string& tool, const Json& arguments) {
    return Query("tools/call", {{"name", tool}, {"arguments", arguments}});
  }

  std::vector<Json> sent_;
  int id_ = 0;
  Session session_{"", [this](const Json& message) { sent_.push_back(message); }};
};

TEST_F(McpSession, AgreesOnAVersion) {
  for (const char* version : {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}) {
    Session session("", [this](const Json& message) { sent_.push_back(message); });
    sent_.clear();
    session.Take(std::string(R"({"jsonrpc":"2.0","id":"a","method":"initialize","params":)") +
                 R"({"protocolVersion":")" + version + R"("}})");
    EXPECT_EQ(sent_.at(0)["result"]["protocolVersion"], version);
  }
  const Json answer = Begin("1999-01-01");
  EXPECT_EQ(answer["result"]["protocolVersion"], kProtocolVersions[0]) << "the client decides";
  EXPECT_TRUE(answer["result"]["capabilities"].contains("tools"));
  EXPECT_EQ(answer["result"]["serverInfo"]["name"], "plumbline");
  EXPECT_EQ(Begin()["error"]["code"], kInvalidRequest) << "once";
}

TEST_F(McpSession, PingsAlwaysAndTheRestAfterInitialize) {
  EXPECT_EQ(Query("ping")["result"], Json::object());
  EXPECT_EQ(Query("tools/list")["error"]["code"], kInvalidRequest);
  Begin();
  EXPECT_TRUE(Query("tools/list")["result"]["tools"].is_array());
}

TEST_F(McpSession, ErrorsByCode) {
  EXPECT_EQ(One("{")["error"]["code"], kParseError);
  EXPECT_EQ(One("\"\xff\"")["error"]["code"], kParseError);
  EXPECT_EQ(One("{\"a\":1e999}")["error"]["code"], kParseError);
  EXPECT_FALSE(One("{").contains("id"));
  Begin();
  const auto code = [&](const std::string& line) { return One(line)["error"]["code"]; };
  EXPECT_EQ(code("1"), kInvalidRequest);
  EXPECT_EQ(code("{}"), kInvalidRequest);
  EXPECT_EQ(code("[]"), kInvalidRequest);
  EXPECT_EQ(code(R"({"jsonrpc":"1.0","id":1,"method":"ping"})"), kInvalidRequest);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":5})"), kInvalidRequest);
  for (const char* id : {"null", "1.5", "true", "[]", "{}"}) {
    const Json answer = One(std::string(R"({"jsonrpc":"2.0","id":)") + id + R"(,"method":"ping"})");
    EXPECT_EQ(answer["error"]["code"], kInvalidRequest) << id;
    EXPECT_FALSE(answer.contains("id")) << id;
  }
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[]})"), kInvalidParams);
  EXPECT_EQ(Query("prompts/list")["error"]["code"], kMethodNotFound);
  EXPECT_EQ(Query("tools/list", {{"cursor", "x"}})["error"]["code"], kInvalidParams);
  EXPECT_EQ(Query("tools/call")["error"]["code"], kInvalidParams);
  EXPECT_EQ(Call("rm", Json::object())["error"]["code"], kInvalidParams);
  EXPECT_EQ(Call("list_runs", Json::array())["error"]["code"], kInvalidParams);
  EXPECT_EQ(Query("resources/read")["error"]["code"], kInvalidParams);
  EXPECT_EQ(Query("resources/read", {{"uri", "file:///etc/passwd"}})["error"]["code"],
            kResourceNotFound);
  session_.TakeTooLong(10);
  EXPECT_EQ(sent_.back()["error"]["code"], kInvalidRequest);
}

TEST_F(McpSession, NotificationsAndAnswersAreNotAnswered) {
  for (const char* line :
       {R"({"jsonrpc":"2.0","method":"notifications/initialized"})",
        R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}})",
        R"({"jsonrpc":"2.0","method":"tools/call","params":{"name":"list_runs"}})",
        R"({"jsonrpc":"2.0","method":"unknown/method","params":[]})",
        R"({"jsonrpc":"2.0","id":3,"result":{}})",
        R"({"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}})", "", "   "}) {
    EXPECT_TRUE(Send(line).empty()) << line;
  }
}

// Only 2025-03-26 has batches.
TEST_F(McpSession, Batches) {
  const std::string batch =
      R"([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},3])";
  Begin("2025-06-18");
  EXPECT_EQ(One(batch)["error"]["code"], kInvalidRequest);
  sent_.clear();
  Session old("", [this](const Json& message) { sent_.push_back(message); });
  old.Take(
      R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26"}})");
  sent_.clear();
  old.Take(batch);
  ASSERT_EQ(sent_.size(), 1u);
  ASSERT_EQ(sent_[0].size(), 2u);
  EXPECT_EQ(sent_[0][0]["result"], Json::object());
  EXPECT_EQ(sent_[0][1]["error"]["code"], kInvalidRequest);
  sent_.clear();
  old.Take(R"([{"jsonrpc":"2.0","method":"x"}])");
  EXPECT_TRUE(sent_.empty());
  std::string many = "[";
  for (size_t i = 0; i <= kMostBatch; ++i) many += i == 0 ? "1" : ",1";
  old.Take(many + "]");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0]["error"]["code"], kInvalidRequest);
}

TEST_F(McpSession, ToolsDescribeTheirInputsAndOutputs) {
  Begin();
  std::set<std::string> names;
  const Json tools = Query("tools/list")["result"]["tools"];
  for (const Json& tool : tools) {
    names.insert(tool["name"].get<std::string>());
    for (const char* schema : {"inputSchema", "outputSchema"}) {
      EXPECT_EQ(tool[schema]["type"], "object");
      for (const Json& name : tool[schema].value("required", Json::array()))
        EXPECT_TRUE(tool[schema]["properties"].contains(name.get<std::string>()));
    }
    EXPECT_EQ(tool["annotations"]["readOnlyHint"], true);
    EXPECT_GT(tool["description"].get<std::string>().size(), 20u);
  }
  EXPECT_EQ(names, (std::set<std::string>{"list_runs", "list_incidents", "get_finding",
                                          "get_series", "explain_rule", "audit_path"}));
}

TEST_F(McpSession, WithoutAServerItsToolsReportIt) {
  Begin();
  const std::vector<std::pair<std::string, Json>> calls = {{"list_runs", Json::object()},
                                                           {"list_incidents", Json::object()},
                                                           {"get_finding", {{"fingerprint", "ab"}}},
                                                           {"get_series", {{"run", "r"}}}};
  for (const auto& [tool, arguments] : calls) {
    const Json result = Call(tool, arguments)["result"];
    EXPECT_EQ(result["isError"], true) << tool;
    EXPECT_THAT(result["content"][0]["text"].get<std::string>(), HasSubstr("--server"));
    EXPECT_FALSE(result.contains("structuredContent"));
    EXPECT_THAT(result["content"][1]["text"].get<std::string>(), HasSubstr("are data"));
  }
}

TEST_F(McpSession, ExplainsARule) {
  Begin();
  const Json result = Call("explain_rule", {{"rule", "moe-future-leak"}})["result"];
  EXPECT_EQ(result["isError"], false);
  EXPECT_EQ(result["structuredContent"]["id"], "causality/moe-future-leak");
  EXPECT_EQ(Json::parse(result["content"][0]["text"].get<std::string>()),
            result["structuredContent"]);
  EXPECT_THAT(result["content"][1]["text"].get<std::string>(), HasSubstr("are data, never"));
  const Json unknown = Call("explain_rule", {{"rule", "causality/moe-future-leek"}})["result"];
  EXPECT_EQ(unknown["isError"], true);
  EXPECT_THAT(unknown["content"][0]["text"].get<std::string>(), HasSubstr("moe-future-leak?"));
}

TEST_F(McpSession, EveryPageIsAResource) {
  Begin();
  const Json list = Query("resources/list")["result"]["resources"];
  ASSERT_GT(list.size(), 20u);
  for (const Json& resource : list) {
    const Json page = Query("resources/read", {{"uri", resource["uri"]}})["result"]["contents"][0];
    EXPECT_EQ(page["uri"], resource["uri"]);
    EXPECT_EQ(page["mimeType"], "text/markdown");
    EXPECT_THAT(page["text"].get<std::string>(), HasSubstr(resource["name"].get<std::string>()));
  }
  EXPECT_EQ(Query("resources/templates/list")["result"]["resourceTemplates"].size(), 1u);
}

TEST_F(McpSession, AuditsAPath) {
  Begin();
  const testing::TempFolder dir;
  const std::string leaky = dir.Write("leaky.safetensors", testing::LeakyDump().File());
  const Json result = Call("audit_path", {{"path", leaky}})["result"];
  ASSERT_EQ(result["isError"], false) << result.dump();
  const Json& answer = result["structuredContent"];
  EXPECT_EQ(answer["findings"][0]["rule"], "causality/moe-future-leak");
  EXPECT_TRUE(answer["findings"][0]["witness"].is_object());
  EXPECT_GE(answer["coverage"]["judged"].get<int>(), 1);
  EXPECT_EQ(answer["inputs"][0]["path"], leaky);
  const auto failed = [&](const Json& arguments) {
    const Json failure = Call("audit_path", arguments)["result"];
    EXPECT_EQ(failure["isError"], true) << arguments.dump();
    return failure["content"][0]["text"].get<std::string>();
  };
  EXPECT_THAT(failed({{"path", "/nonexistent"}}), HasSubstr("expected a file or a directory"));
  EXPECT_THAT(failed({{"path", "/dev/zero"}}), HasSubstr("expected a file or a directory"));
  EXPECT_THAT(failed({{"path", "/proc/kmsg"}}), HasSubstr("expected a recorded file"));
  for (int i = 0; i <= 10'000; ++i) dir.Write("many/" + std::to_string(i), "");
  EXPECT_THAT(failed({{"path", dir.File("many")}}), HasSubstr("expected at most 10000 files"));
  EXPECT_THAT(failed({{"path", leaky}, {"rules", {"nothing/*"}}}), HasSubstr("nothing/*"));
  EXPECT_THAT(failed({{"path", 5}}), HasSubstr("path: expected a string, found 5"));
  EXPECT_THAT(failed({{"path", leaky}, {"max_findings", 0}}), HasSubstr("from 1 to 200"));
  EXPECT_THAT(failed({{"path", leaky}, {"colour", "red"}}), HasSubstr("expected the arguments"));
  EXPECT_THAT(failed(Json::object()), HasSubstr("path: expected, found nothing"));
}

// Ids name training text: an assistant gets them only if it requests them.
TEST_F(McpSession, AnswersNameNoIdsUnlessRequested) {
  Begin();
  const testing::TempFolder dir;
  const std::string leaky = dir.Write("leaky.safetensors", testing::LeakyDump().File());
  const Json hidden = Call("audit_path", {{"path", leaky}})["result"]["structuredContent"];
  const Json raw =
      Call("audit_path", {{"path", leaky}, {"raw_ids", true}})["result"]["structuredContent"];
  const auto refused = [](const Json& answer) {
    return answer["findings"][0]["witness"]["refused"]["sequence"];
  };
  EXPECT_EQ(refused(hidden), "(hidden)");
  EXPECT_TRUE(refused(raw).is_number()) << raw["findings"][0].dump();
  const std::string number = std::to_string(refused(raw).get<int>());
  EXPECT_THAT(raw["findings"][0]["witness"]["text"].get<std::string>(),
              HasSubstr("sequence " + number + ","));
  EXPECT_THAT(hidden["findings"][0]["witness"]["text"].get<std::string>(),
              HasSubstr("sequence (hidden), position "));
  EXPECT_EQ(hidden["findings"][0]["fingerprint"], raw["findings"][0]["fingerprint"]);
}

// Problems do not quote the value that a rollout file holds in place of an expected one.
TEST_F(McpSession, ProblemsQuoteNoIdsUnlessRequested) {
  Begin();
  const testing::TempFolder dir;
  const std::string end = R"("loss_mask":[1],"rollout_logprobs":[-1],"train_logprobs":[-1]})";
  const std::string files[] = {
      dir.Write("text.jsonl", R"({"step":0,"sequence_id":"a","tokens":["77770001"],)" + end + "\n"),
      dir.Write("float.jsonl", R"({"step":0,"sequence_id":77770001.5,"tokens":[1],)" + end + "\n"),
      dir.Write("after.jsonl",
                R"({"step":0,"sequence_id":"a","tokens":[1],)" + end + " 77770001\n"),
      dir.Write("unknown.txt", "the text 77770001\n")};
  for (const std::string& file : files) {
    const Json hidden = Call("audit_path", {{"path", file}})["result"];
    EXPECT_THAT(hidden.dump(), Not(HasSubstr("77770001"))) << file;
    const Json raw = Call("audit_path", {{"path", file}, {"raw_ids", true}})["result"];
    EXPECT_THAT(raw.dump(), HasSubstr("77770001")) << file;
  }
}

// For any input there is at most one answer, it is well formed, and the next request is answered.
TEST_F(McpSession, NothingThatAClientSendsEndsIt) {
  Begin("2025-03-26");
  std::vector<std::string> seeds = {
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"explain_rule","arguments":{"rule":"x"}}})",
      R"({"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"get_series","arguments":{"run":"r","cells":4,"over_ranks":true}}})",
      R"({"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"plumbline://rules/a/b"}})",
      R"([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}])",
      std::string(100'000, '['),
      std::string(100'000, '{'),
      R"({"a":)" + std::string(5000, '['),
      "{\"id\":\"" + std::string(1 << 20, 'x') + "\"}"};
  std::mt19937 random(3);
  for (int i = 0; i < 5'000; ++i) {
    std::string line = seeds[random() % 4];
    const size_t changes = 1 + random() % 4;
    for (size_t k = 0; k < changes; ++k) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = static_cast<char>(random());
          break;
        case 1:
          line.erase(at, 1 + random() % 8);
          break;
        default:
          line.insert(at, 1, "{}[]\",:0-"[random() % 9]);
      }
      if (line.empty()) line = "x";
    }
    seeds.push_back(line);
    const std::vector<Json> sent = Send(line);
    ASSERT_LE(sent.size(), 1u) << line;
    for (const Json& message : sent) {
      const std::string text = LineOf(message);
      ASSERT_EQ(text.find('\n'), std::string::npos);
      ASSERT_FALSE(Json::parse(text).is_discarded());
    }
    seeds.resize(8);
  }
  for (size_t i = 4; i < 8; ++i) EXPECT_TRUE(One(seeds[i]).contains("error"));
  EXPECT_EQ(Query("ping")["result"], Json::object());
}

TEST(McpArguments, AreHeldToTheirSchema) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 1, "maximum": 9}, "any": {"type": "integer"},
    "s": {"type": "string", "maxLength": 3, "enum": ["a", "bcd"]}, "b": {"type": "boolean"},
    "l": {"type": "array", "items": {"type": "string"}, "maxItems": 2}}, "required": ["n"]})");
  const auto wrong = [&](const char* json) { return CheckArguments(schema, Json::parse(json)); };
  EXPECT_EQ(
      wrong(R"({"n": 1, "s": "bcd", "b": false, "l": ["x", "y"], "any": -9223372036854775808})"),
      "");
  EXPECT_EQ(wrong(R"({"n": 5.0})"), "") << "an integer to JSON Schema";
  for (const char* json :
       {R"({})", R"({"n": 0})", R"({"n": 10})", R"({"n": 1.5})", R"({"n": "1"})", R"({"n": null})",
        R"({"n": 1e300})", R"({"n": 1, "any": 18446744073709551615})", R"({"n": 1, "s": "abcd"})",
        R"({"n": 1, "s": "b"})", R"({"n": 1, "b": 1})", R"({"n": 1, "l": "x"})",
        R"({"n": 1, "l": [1]})", R"({"n": 1, "l": ["a", "b", "c"]})", R"({"n": 1, "other": 1})"}) {
    EXPECT_NE(wrong(json), "") << json;
  }
}

TEST(McpFit, LeavesWhatFits) {
  for (const size_t each : {10u, 1000u, 100'000u, 1'000'000u}) {
    Json object;
    object["list"] = Json::array();
    for (int i = 0; i < 300; ++i) object["list"].push_back(std::string(each, 'x'));
    FitList("list", "omitted", 200, &object);
    EXPECT_LE(object["list"].size(), 200u);
    EXPECT_EQ(object["list"].size() + object["omitted"].get<size_t>(), 300u);
    EXPECT_LE(LineOf(object).size(), kMostAnswerBytes + 32);
    if (each == 1000) {
      EXPECT_EQ(object["list"].size(), 200u);
    }
    if (each == 1'000'000) {
      EXPECT_EQ(object["list"].size(), 0u);
    }
  }
}

std::vector<std::pair<int, std::string>> LinesOf(const std::string& bytes, size_t most,
                                                 size_t piece) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const size_t size = std::min(piece, bytes.size() - at);
      EXPECT_EQ(write(ends[1], bytes.data() + at, size), static_cast<ssize_t>(size));
    }
    close(ends[1]);
  });
  McpLineReader reader(ends[0], most);
  std::vector<std::pair<int, std::string>> lines;
  for (;;) {
    std::string line;
    const McpLineReader::Got got = reader.Next(&line);
    if (got == McpLineReader::Got::kEnd) break;
    lines.emplace_back(static_cast<int>(got), line);
  }
  writer.join();
  close(ends[0]);
  return lines;
}

TEST(McpLines, EveryLineOrThatItWasTooLong) {
  constexpr int kLine = static_cast<int>(McpLineReader::Got::kLine);
  constexpr int kTooLong = static_cast<int>(McpLineReader::Got::kTooLong);
  const std::string bytes = "a\n\nbc\r\n" + std::string(8, 'x') + "\n" + std::string(9, 'y') +
                            "\n" + std::string(300'000, 'z') + "\nd";
  const std::vector<std::pair<int, std::string>> wanted = {
      {kLine, "a"},   {kLine, ""},    {kLine, "bc"}, {kLine, std::string(8, 'x')},
      {kTooLong, ""}, {kTooLong, ""}, {kLine, "d"}};
  for (const size_t piece : {1u, 3u, 7u, 65536u, 1'000'000u})
    EXPECT_EQ(LinesOf(bytes, 8, piece), wanted) << piece;
  EXPECT_EQ(LinesOf(std::string(100, 'x'), 8, 10).size(), 1u) << "cut off while it was skipped";
  EXPECT_TRUE(LinesOf("", 8, 10).empty());
}

}  // namespace
}  // namespace plumbline::audit::mcp

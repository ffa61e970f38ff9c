// The protocol of one client, without its streams.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/mcp/message.h"
#include "audit/mcp/tools.h"

namespace plumbline::audit::mcp {

// The supported versions, newest first.
inline constexpr const char* kProtocolVersions[] = {"2025-11-25", "2025-06-18", "2025-03-26",
                                                    "2024-11-05"};
inline constexpr size_t kMostBatch = 64;  // messages; batches are of 2025-03-26 alone

// Answers requests in their order. Not thread-safe.
class Session {
 public:
  using Send = std::function<void(const Json& message)>;

  // `send` is called with each message to the client, during Take.
  Session(const std::string& server, Send send);

  // Handles one line from the client. Errors are sent to the client.
  void Take(std::string_view line);
  // Handles a line that was longer than the limit.
  void TakeTooLong(size_t most_bytes);

 private:
  std::optional<Json> Answer(const Json& message);
  std::optional<Json> AnswerBatch(const Json& batch);
  Json AnswerRequest(const Json& id, const std::string& method, const Json& params);

  // The result of a request, or the reason for refusing it.
  struct Outcome {
    Json result;
    std::optional<Refusal> refusal;
  };
  Outcome Do(const std::string& method, const Json& params);
  Outcome Initialize(const Json& params);
  Outcome ListTools() const;
  Outcome CallTool(const Json& params);
  OnProgress ProgressOf(const Json& params);

  const Send send_;
  const std::string server_;
  std::vector<Tool> tools_;
  std::string version_;  // empty: not initialized
};

}  // namespace plumbline::audit::mcp

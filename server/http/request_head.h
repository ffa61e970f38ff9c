// Parses the head of an HTTP request before any other code. Refuses everything that is not exactly
// one complete request without a body, and closes its connection.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumbline::server {

// No request has a body. A body could be mistaken for the next request, or be compressed.
constexpr size_t kMostHeadBytes = 64 << 10;
constexpr size_t kMostTargetBytes = 8 << 10;
constexpr size_t kMostHeaders = 100;
constexpr std::string_view kWebPath = "/api/v1/";
constexpr std::string_view kSessionPath = "/api/v1/session";
// Also takes a POST: the data is in the header Plumbline-Update instead of a body, because no form
// of another site can send that header.
constexpr std::string_view kIncidentsPath = "/api/v1/incidents/";
constexpr std::string_view kStateEnd = "/state";

struct RequestHead {
  // An equivalent request with only the headers that are used: no range, no body.
  std::string forwarded;
  bool close = false;  // the client states that this is its last request
};

// Returns where the first head in `bytes` ends; npos: not yet. `seen` bytes were searched before.
size_t EndOfHead(std::string_view bytes, size_t seen);

// Parses `bytes` up to EndOfHead. Returns 0, or the status that refuses it (RFC 9110): 400, 405,
// 413, 414, 415, 431 or 505.
int ReadRequestHead(std::string_view bytes, RequestHead* head);

// Returns the answer to a refused request, which no handler gets.
std::string RefusalOf(int status);

}  // namespace plumbline::server

// The head of an HTTP request, read by ourselves before anything else sees it: what is not exactly
// one whole request without a body is refused, and its connection closed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumbline::server {

// No request has a body: who may send one could have it taken for the next request, or packed.
constexpr size_t kMostHeadBytes = 64 << 10;
constexpr size_t kMostTargetBytes = 8 << 10;
constexpr size_t kMostHeaders = 100;
constexpr std::string_view kWebPath = "/api/v1/";
constexpr std::string_view kSessionPath = "/api/v1/session";
// Takes a POST too: what would be its body is the header Plumbline-Update, which no form of another
// site can send.
constexpr std::string_view kIncidentsPath = "/api/v1/incidents/";
constexpr std::string_view kStateEnd = "/state";

struct RequestHead {
  // A request of the same meaning with the headers we act on and no others: no range, no body.
  std::string forwarded;
  bool close = false;  // the client says that this is its last one
};

// Where the first head in `bytes` ends; npos: not yet. `seen`: so many bytes were looked at before.
size_t EndOfHead(std::string_view bytes, size_t seen);

// `bytes`: up to EndOfHead. 0, or the status that refuses it (RFC 9110): 400, 405, 413, 414, 415,
// 431 or 505.
int ReadRequestHead(std::string_view bytes, RequestHead* head);

// An answer of ours to a request that nobody else sees.
std::string RefusalOf(int status);

}  // namespace plumbline::server

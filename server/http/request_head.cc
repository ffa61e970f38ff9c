#include "server/http/request_head.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }
bool Same(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(Abseil(a), Abseil(b));
}
// Returns true if `text` contains `word`, ignoring case. `word` must be lower case.
bool Contains(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
           return absl::ascii_tolower(static_cast<unsigned char>(a)) == b;
         }) != text.end();
}

// Returns true for a token (RFC 9110, 5.6.2).
bool IsToken(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool IsTarget(std::string_view text) {
  return !text.empty() && text[0] == '/' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// Returns true if there are no control characters but tabs: another parser might take a lone CR or
// LF as the end of a line.
bool IsValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= ' ' && byte != 0x7F);
  });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Removes and returns the next part of a list that `mark` separates.
std::string_view NextPart(std::string_view* rest, char mark) {
  const size_t end = std::min(rest->find(mark), rest->size());
  const std::string_view part = Trimmed(rest->substr(0, end));
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return part;
}

// Returns true for a weight of zero (RFC 9110, 12.4.2).
bool Refuses(std::string_view parameters) {
  while (!parameters.empty()) {
    const std::string_view one = NextPart(&parameters, ';');
    if (one.size() < 3 || !Same(one.substr(0, 2), "q=")) continue;
    return one.find_first_not_of("0.", 2) == std::string_view::npos;
  }
  return false;
}

// Returns true if gzip is accepted (RFC 9110, 12.5.3): by name if it is listed, otherwise by "*".
bool TakesGzip(std::string_view accepted) {
  bool any = false;
  while (!accepted.empty()) {
    std::string_view one = NextPart(&accepted, ',');
    const std::string_view name = NextPart(&one, ';');
    if (Same(name, "gzip") || Same(name, "x-gzip")) return !Refuses(one);
    if (name == "*") any = !Refuses(one);
  }
  return any;
}

std::string_view NextLine(std::string_view* rest) {
  const size_t end = rest->find(kLineEnd);
  const std::string_view line = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + kLineEnd.size());
  return line;
}

// Counts of the headers that decide whether a request is valid.
struct Seen {
  size_t count = 0, hosts = 0, authorizations = 0;
};

// Headers that a handler may use. All others are dropped. Range in particular: the library would
// build the ranges in memory, one copy each.
constexpr std::string_view kForwarded[] = {
    "Host",          "Authorization",  "Cookie",        "Accept",           "Origin",
    "If-None-Match", "Sec-Fetch-Site", "Last-Event-ID", "Plumbline-Update",
};

int ReadHeader(std::string_view line, Seen* seen, RequestHead* head) {
  if (++seen->count > kMostHeaders) return 431;
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return 400;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trimmed(line.substr(colon + 1));
  if (!IsToken(name) || !IsValue(value)) return 400;  // a folded line has no token either
  if (Same(name, "Content-Length")) return value == "0" ? 0 : 413;
  if (Same(name, "Transfer-Encoding")) return 413;
  if (Same(name, "Content-Encoding")) return 415;
  if (Same(name, "Host") && ++seen->hosts > 1) return 400;
  if (Same(name, "Authorization") && ++seen->authorizations > 1) return 400;
  if (Same(name, "Connection")) head->close |= Contains(value, "close");
  // The library's other compressions cost a hundred times as much.
  if (Same(name, "Accept-Encoding") && TakesGzip(value)) {
    absl::StrAppend(&head->forwarded, "Accept-Encoding: gzip\r\n");
  }
  for (const std::string_view one : kForwarded) {
    if (Same(name, one)) {
      head->forwarded.append(one).append(": ").append(value).append(kLineEnd);
    }
  }
  return 0;
}

// Returns true if a method that changes state is allowed for the path.
bool MayChange(std::string_view method, std::string_view path) {
  if (path == kSessionPath) return method == "POST" || method == "DELETE";
  const auto names = [path](std::string_view begin, std::string_view end) {
    return path.size() > begin.size() + end.size() && path.starts_with(begin) &&
           path.ends_with(end);
  };
  return method == "POST" &&
         (names(kIncidentsPath, kStateEnd) || names("/api/v1/runs/", "/labels"));
}

int ReadRequestLine(std::string_view line, bool* one_zero, RequestHead* head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return 400;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method)) return 400;
  if (target.size() > kMostTargetBytes) return 414;
  const bool changes = MayChange(method, target.substr(0, target.find('?')));
  if (method != "GET" && method != "HEAD" && !changes) return 405;
  if (!IsTarget(target)) return 400;
  if (version.size() != 8 || version.substr(0, 5) != "HTTP/") return 400;
  if (version.substr(0, 7) != "HTTP/1.") return 505;
  *one_zero = version == "HTTP/1.0";
  head->close = *one_zero;
  head->forwarded = std::string(method) + " " + std::string(target) + " HTTP/1.1\r\n";
  if (changes) head->forwarded += "Content-Length: 0\r\n";
  return 0;
}

}  // namespace

size_t EndOfHead(std::string_view bytes, size_t seen) {
  const size_t from = seen < kHeadEnd.size() ? 0 : seen - (kHeadEnd.size() - 1);
  const size_t at = bytes.find(kHeadEnd, from);
  return at == std::string_view::npos ? at : at + kHeadEnd.size();
}

int ReadRequestHead(std::string_view bytes, RequestHead* head) {
  *head = RequestHead();
  if (bytes.size() > kMostHeadBytes) return 431;
  bytes.remove_suffix(std::min(bytes.size(), kLineEnd.size()));  // the empty line
  bool one_zero = false;
  if (const int status = ReadRequestLine(NextLine(&bytes), &one_zero, head)) return status;
  Seen seen;
  while (!bytes.empty()) {
    if (const int status = ReadHeader(NextLine(&bytes), &seen, head)) return status;
  }
  if (seen.hosts == 0 && !one_zero) return 400;
  absl::StrAppend(&head->forwarded, head->close ? "Connection: close\r\n\r\n" : "\r\n");
  return 0;
}

std::string RefusalOf(int status) {
  const struct {
    int status;
    const char *name, *text;
  } all[] = {
      {400, "Bad Request", "this is not a valid HTTP request"},
      {405, "Method Not Allowed",
       "this server answers GET and HEAD, POST and DELETE of a session, and POST of an incident's "
       "state or a run's labels"},
      {408, "Request Timeout", "a request must be complete within 5 s"},
      {413, "Content Too Large", "this server accepts no request with a body"},
      {414, "URI Too Long", "a path may have at most 8 KiB"},
      {415, "Unsupported Media Type", "this server accepts no request with a body"},
      {431, "Request Header Fields Too Large",
       "the head of a request may have at most 64 KiB and 100 lines"},
      {503, "Service Unavailable", "too many answers have not been read by their clients"},
      {505, "HTTP Version Not Supported", "this server supports only HTTP version 1"},
  };
  const auto* const found = std::find_if(
      std::begin(all), std::end(all), [status](const auto& one) { return one.status == status; });
  const auto& stated = found == std::end(all) ? all[0] : *found;
  const std::string body = absl::StrCat(stated.text, "\n");
  return absl::StrCat("HTTP/1.1 ", stated.status, " ", stated.name,
                      "\r\nContent-Type: text/plain\r\n"
                      "Connection: close\r\nContent-Length: ",
                      body.size(), status == 405 ? "\r\nAllow: GET, HEAD" : "", "\r\n\r\n", body);
}

}  // namespace plumbline::server

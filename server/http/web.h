// The interface between the HTTP side and the page's service.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/http/event_source.h"

namespace plumbline::server {

// What a request shows of its sender; empty: not present.
struct HttpCaller {
  std::string authorization;  // the header
  std::string session;        // of the cookie
  std::string host;           // the header: the name by which the server was called
};

struct WebRequest {
  std::string method;                                       // GET, HEAD, POST or DELETE
  std::string path;                                         // as sent, without the query
  std::vector<std::pair<std::string, std::string>> params;  // of the query, decoded
  HttpCaller caller;
  std::string host, origin, fetch_site;  // headers: Host, Origin, Sec-Fetch-Site
  std::string update;                    // Plumbline-Update: replaces the body of a POST
  std::string last_event, known_tag;     // Last-Event-ID, If-None-Match
  bool takes_gzip = false;               // Accept-Encoding
};

struct WebAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  bool gzip = false;  // the body is compressed already
  std::vector<std::pair<std::string, std::string>> headers;
  std::shared_ptr<EventSource> events;  // if set, they are the answer
};

// Handles any path that the HTTP side does not know, and the session. Called on several threads.
using WebHandler = std::function<WebAnswer(const WebRequest& request)>;

}  // namespace plumbline::server

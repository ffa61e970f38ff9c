// A source of events that replaces all further answers of one connection.
#pragma once

#include <string>

namespace plumbline::server {

class EventSource {
 public:
  virtual ~EventSource() = default;

  // Returns what must be sent now; empty: nothing. Called ten times a second, but only if the peer
  // has taken what was sent before, so that a slow peer costs no memory. Runs on the thread of all
  // connections, so it must be quick. If it sets `*over`, nothing follows, and the connection ends.
  virtual std::string Take(bool* over) = 0;
};

}  // namespace plumbline::server

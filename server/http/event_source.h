// What one connection is told as it happens, in place of a second answer.
#pragma once

#include <string>

namespace plumbline::server {

class EventSource {
 public:
  virtual ~EventSource() = default;

  // What is to be sent now; empty: nothing. Asked ten times a second, and only when the peer has
  // taken what was sent before, so that a slow one costs no memory: on the thread of all
  // connections, so it must be quick. `*over`: nothing follows, and the connection ends.
  virtual std::string Take(bool* over) = 0;
};

}  // namespace plumbline::server

// A test's certificate authority, and certificates by it, as PEM files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

struct CertificateFiles {
  std::string cert, key;  // paths; the key has mode 0600
};

class Authority {
 public:
  // Files go into `folder`, named after `name`.
  Authority(const TempFolder& folder, const std::string& name);
  ~Authority();

  const std::string& file() const { return file_; }

  struct Wish {
    std::string name = "host";  // of the files, and the common name
    std::vector<std::string> sans = {"DNS:localhost", "IP:127.0.0.1"};
    long begins_s = -3600, ends_s = 86400;  // from now
  };
  CertificateFiles Issue(const Wish& wish) const;

 private:
  struct Keys;
  const TempFolder& folder_;
  std::string file_;
  std::unique_ptr<Keys> keys_;
};

}  // namespace plumbline::test

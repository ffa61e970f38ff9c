#include "analysis/frame/fingerprint.h"

#include "analysis/frame/hash_fields.h"

namespace plumbline::analysis {

std::string Fingerprint(std::string_view rule, const v1::FindingSite& site) {
  return HashFields({rule, site.run(), site.layer(), site.op()});
}

}  // namespace plumbline::analysis

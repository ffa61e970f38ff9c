#include "agent/interpose/next.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace plumbline::interpose {

Target targets[kTargets];

namespace {

constexpr uint32_t kProbes = 8;

// Returns the link map of the object that contains the address; null if none does.
const link_map* ObjectOf(const void* address) {
  Dl_info info;
  void* map = nullptr;
  if (dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
}

struct Order {
  const void* addresses[3];
  int places[3];
  int next;
};

int NoteOrder(dl_phdr_info* info, size_t /*size*/, void* context) {
  auto* order = static_cast<Order*>(context);
  for (int i = 0; i < 3; ++i) {
    const auto at = reinterpret_cast<uintptr_t>(order->addresses[i]);
    for (int k = 0; k < info->dlpi_phnum; ++k) {
      const auto& header = info->dlpi_phdr[k];
      const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      if (header.p_type == PT_LOAD && at >= begin && at - begin < header.p_memsz)
        order->places[i] = order->next;
    }
  }
  ++order->next;
  return 0;
}

// Returns whether a caller is bound to its own scope's function, not to the global scope's. That is
// so if the global one was loaded after both: when the caller was bound, it was not there yet.
bool OwnFirst(const void* caller, const void* own, const void* global) {
  Order order{{caller, own, global}, {-1, -1, -1}, 0};
  dl_iterate_phdr(NoteOrder, &order);
  return order.places[0] < order.places[2] && order.places[1] < order.places[2];
}

// Looks in the scope of the caller's object. Keeps the object loaded, so that its return addresses
// stay its own. The main program's scope is the global one, in which this library is first.
void* OwnOf(const char* name, const void* caller) {
  const link_map* object = ObjectOf(caller);
  if (object == nullptr || object->l_name == nullptr || object->l_name[0] == '\0') return nullptr;
  void* handle = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, name);
  // An object that needs no library with the symbol may still see this one, by its dependencies.
  if (found == nullptr || ObjectOf(found) == ObjectOf(reinterpret_cast<const void*>(&FindNext)))
    return nullptr;
  return found;
}

struct Search {
  const char* name;
  void* found;
};

// Looks into each loaded object: the last resort, for a caller that belongs to no object.
int LookInto(dl_phdr_info* info, size_t /*size*/, void* context) {
  auto* search = static_cast<Search*>(context);
  if (info->dlpi_name == nullptr || info->dlpi_name[0] == '\0') return 0;
  void* handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  void* found = dlsym(handle, search->name);
  if (found != nullptr && ObjectOf(found) != ObjectOf(reinterpret_cast<const void*>(&FindNext)))
    search->found = found;
  return search->found != nullptr ? 1 : 0;
}

void Write(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written;
}

[[noreturn]] void Missing(const char* name) {
  Write("plumbline: symbol lookup error: undefined symbol: ");
  Write(name);
  Write("\n");
  _exit(127);
}

void Keep(uintptr_t key, void* found) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    Target& at = targets[(PlaceOf(key) + i) & (kTargets - 1)];
    uintptr_t empty = 0;
    if (at.key.compare_exchange_strong(empty, key, std::memory_order_relaxed) || empty == key) {
      at.function.store(found, std::memory_order_release);
      return;
    }
  }
}

void* Kept(uintptr_t key) {
  for (uint32_t i = 0; i < kProbes; ++i) {
    const Target& at = targets[(PlaceOf(key) + i) & (kTargets - 1)];
    if (at.key.load(std::memory_order_relaxed) == key)
      return at.function.load(std::memory_order_acquire);
  }
  return nullptr;
}

// dlsym leaves a message for dlerror() if it fails. Reading it removes ours.
void* Resolve(const char* name, const void* caller) {
  void* global = dlsym(RTLD_NEXT, name);
  void* own = OwnOf(name, caller);
  void* found = global;
  if (global == nullptr || (own != nullptr && own != global && OwnFirst(caller, own, global)))
    found = own;
  if (found == nullptr) {
    Search search{name, nullptr};
    dl_iterate_phdr(LookInto, &search);
    found = search.found;
  }
  dlerror();
  return found;
}

}  // namespace

void* FindNext(uintptr_t key, const char* name, void* caller) {
  if (void* kept = Kept(key); kept != nullptr) return kept;
  const int saved = errno;
  void* found = Resolve(name, caller);
  errno = saved;
  if (found == nullptr) Missing(name);
  Keep(key, found);
  return found;
}

}  // namespace plumbline::interpose

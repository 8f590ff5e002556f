# Defines the targets, for an installed slotline and for one in the same build.

# slotline_targets(INCLUDE STATIC SHARED): defines slotline::static and slotline::shared for these files, and
# slotline::slotline, which is the static one unless BUILD_SHARED_LIBS is on.
function(slotline_targets include static shared)
  add_library(slotline::static STATIC IMPORTED GLOBAL)
  add_library(slotline::shared SHARED IMPORTED GLOBAL)
  set_target_properties(slotline::static PROPERTIES IMPORTED_LOCATION "${static}")
  set_target_properties(slotline::shared PROPERTIES IMPORTED_LOCATION "${shared}")
  foreach(library slotline::static slotline::shared)
    set_target_properties(${library} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${include}")
  endforeach()
  # A plugin then exports none of slotline, and uses its own copy even if the program that loads it has another one.
  set_target_properties(slotline::static PROPERTIES INTERFACE_LINK_OPTIONS "LINKER:--exclude-libs,libslotline.a")
  set_target_properties(slotline::static PROPERTIES INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
  add_library(slotline::slotline INTERFACE IMPORTED GLOBAL)
  if(BUILD_SHARED_LIBS)
    set_target_properties(slotline::slotline PROPERTIES INTERFACE_LINK_LIBRARIES slotline::shared)
  else()
    set_target_properties(slotline::slotline PROPERTIES INTERFACE_LINK_LIBRARIES slotline::static)
  endif()
endfunction()

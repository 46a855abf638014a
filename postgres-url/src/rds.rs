//! The roots that sign the certificates of Amazon RDS and Aurora. They are private to AWS, so no list of a browser has them.

/// Its first lines say of when it is. One region's roots are used, so that no other region's could stand for it.
const ROOTS: &str = include_str!("rds-roots.pem");
const HOSTS: [&str; 2] = [".rds.amazonaws.com", ".rds.amazonaws.com.cn"];

/// The roots of the region of an address `….<region>.rds.amazonaws.com`, as PEM; empty for any other address, and for a region
/// that is newer than the list.
pub(crate) fn roots_for(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    let before = HOSTS.iter().find_map(|suffix| host.strip_suffix(suffix));
    let Some(region) = before.and_then(|before| before.rsplit('.').next()) else { return String::new() };
    let begin = format!("{region} ");
    ROOTS.split("\n# ").skip(1).filter(|root| root.starts_with(&begin)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_rds_gets_its_own_regions_roots() {
        for host in ["db.abc.eu-central-1.rds.amazonaws.com", "C.cluster-x.EU-central-1.rds.amazonaws.com"] {
            let pem = roots_for(host);
            assert_eq!(pem.matches("-----BEGIN CERTIFICATE-----").count(), 3, "{host}");
            assert_eq!(pem.matches("eu-central-1 ").count(), 3, "{host}");
        }
        for host in ["db.example.com", "rds.amazonaws.com.evil.example", "x.nowhere-1.rds.amazonaws.com", ""]
        {
            assert_eq!(roots_for(host), "", "{host}");
        }
    }

    #[test]
    fn each_of_the_regions_in_the_list_has_a_root_for_each_kind_of_key() {
        let heads: Vec<&str> = ROOTS.split("\n# ").skip(1).filter_map(|root| root.lines().next()).collect();
        assert_eq!(heads.len(), 84);
        for head in heads {
            let region = head.split(' ').next().unwrap_or_default();
            assert_eq!(
                roots_for(&format!("x.{region}.rds.amazonaws.com")).matches("BEGIN").count(),
                3,
                "{head}"
            );
        }
    }
}
